-- Something to write, and no row: the commit waits for the disk as every other does.
SELECT pg_logical_emit_message(true, 'holdfast', 'doctor')
