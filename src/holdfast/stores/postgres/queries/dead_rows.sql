SELECT s.relname, s.n_dead_tup FROM pg_stat_user_tables AS s
WHERE s.schemaname = :schema::text ORDER BY s.relname
