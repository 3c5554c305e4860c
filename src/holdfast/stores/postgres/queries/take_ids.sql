SELECT nextval('{schema}.task_id') FROM generate_series(1, :count::integer)
