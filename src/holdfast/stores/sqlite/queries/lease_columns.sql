SELECT name FROM pragma_table_info('holdfast_lease')
