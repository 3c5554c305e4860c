-- What this user lacks, of what a node needs.
SELECT r.name || ' on ' || c.relname
FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS r (name)
WHERE n.nspname = :schema_name::text AND c.relkind IN ('r', 'p') AND NOT c.relispartition
    AND NOT has_table_privilege(c.oid, r.name)
UNION ALL
SELECT 'USAGE on ' || c.relname
FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = :schema_name::text
    -- In this order: the question is an error for anything but a sequence.
    AND CASE c.relkind WHEN 'S' THEN NOT has_sequence_privilege(c.oid, 'USAGE') ELSE false END
UNION ALL
SELECT 'CREATE on schema ' || n.nspname
FROM pg_catalog.pg_namespace AS n
WHERE n.nspname = :schema_name::text AND NOT has_schema_privilege(n.oid, 'CREATE')
ORDER BY 1
