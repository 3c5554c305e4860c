-- Day tables that lie wholly before the first day to keep, attached or left over from a clean
-- that was cut off between detaching and dropping.
SELECT c.relname, i.inhparent IS NOT NULL, coalesce(i.inhdetachpending, false)
FROM pg_catalog.pg_class AS c
LEFT JOIN pg_catalog.pg_inherits AS i ON i.inhrelid = c.oid
WHERE c.relnamespace = '{schema}'::regnamespace AND c.relkind = 'r'
    AND c.relname ~ '^archive_[0-9]{8}$'
    AND c.relname < 'archive_' || to_char(
        ({schema}.now() AT TIME ZONE 'UTC') - :keep_days::double precision * interval '1 day',
        'YYYYMMDD'
    )
ORDER BY c.relname
