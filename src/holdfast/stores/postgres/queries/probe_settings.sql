SELECT s.name, s.setting FROM pg_catalog.pg_settings AS s
WHERE s.name IN (
    'fsync', 'full_page_writes', 'synchronous_commit', 'autovacuum', 'track_counts',
    'server_version', 'server_version_num', 'max_connections', 'superuser_reserved_connections'
)
UNION ALL
SELECT 'in_recovery', pg_is_in_recovery()::text
UNION ALL
SELECT 'connections_used', (
    SELECT count(*) FROM pg_catalog.pg_stat_activity AS a WHERE a.backend_type = 'client backend'
)::text
