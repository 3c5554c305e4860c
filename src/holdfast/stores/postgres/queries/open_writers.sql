-- Whose transaction has a number below which nothing new can be read exactly, the oldest first.
SELECT
    'pid ' || a.pid, coalesce(a.usename::text, ''),
    extract(epoch FROM clock_timestamp() - a.xact_start)::double precision AS since_s,
    coalesce(left(a.query, 80), '')
FROM pg_catalog.pg_stat_activity AS a
WHERE a.backend_xid IS NOT NULL AND a.pid <> pg_backend_pid() AND a.xact_start IS NOT NULL
UNION ALL
SELECT
    'prepared transaction ' || x.gid, x.owner::text,
    extract(epoch FROM clock_timestamp() - x.prepared)::double precision, ''
FROM pg_catalog.pg_prepared_xacts AS x
ORDER BY since_s DESC LIMIT 5
