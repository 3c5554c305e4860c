-- Whoever keeps vacuum from removing dead rows.  Slots and standbys do not say since when: they are
-- judged by the transactions that were begun since.
SELECT
    'pid ' || a.pid AS name, coalesce(a.usename::text, '') AS owner,
    extract(epoch FROM clock_timestamp() - a.xact_start)::double precision AS since_s,
    age(coalesce(a.backend_xmin, a.backend_xid))::bigint AS transactions,
    coalesce(a.state, ''), coalesce(left(a.query, 60), '')
FROM pg_catalog.pg_stat_activity AS a
WHERE coalesce(a.backend_xmin, a.backend_xid) IS NOT NULL AND a.pid <> pg_backend_pid()
    AND a.xact_start IS NOT NULL AND a.datname = current_database()
    AND a.backend_type <> 'autovacuum worker'
UNION ALL
SELECT
    'prepared transaction ' || x.gid, x.owner::text,
    extract(epoch FROM clock_timestamp() - x.prepared)::double precision,
    age(x.transaction)::bigint, 'prepared', ''
FROM pg_catalog.pg_prepared_xacts AS x
UNION ALL
SELECT
    'replication slot ' || s.slot_name, '', NULL, age(coalesce(s.xmin, s.catalog_xmin))::bigint,
    CASE WHEN s.active THEN 'active' ELSE 'nobody reads it' END, ''
FROM pg_catalog.pg_replication_slots AS s
WHERE coalesce(s.xmin, s.catalog_xmin) IS NOT NULL
UNION ALL
SELECT
    'standby ' || coalesce(nullif(r.application_name, ''), host(r.client_addr), 'unnamed'),
    coalesce(r.usename::text, ''), NULL, age(r.backend_xmin)::bigint, 'hot_standby_feedback', ''
FROM pg_catalog.pg_stat_replication AS r WHERE r.backend_xmin IS NOT NULL
ORDER BY since_s DESC NULLS LAST LIMIT 20
