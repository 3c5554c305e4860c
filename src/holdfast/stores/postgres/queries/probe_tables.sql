SELECT
    c.relname::text, coalesce(c.reloptions, '{}'), coalesce(s.n_live_tup, 0),
    coalesce(s.n_dead_tup, 0)
FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_stat_all_tables AS s ON s.relid = c.oid
WHERE n.nspname = :schema_name::text AND c.relkind = 'r' AND NOT c.relispartition
ORDER BY c.relname
