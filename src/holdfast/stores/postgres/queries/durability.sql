SELECT s.name, s.setting FROM pg_catalog.pg_settings AS s
WHERE s.name IN (
    'fsync', 'full_page_writes', 'synchronous_commit', 'synchronous_standby_names',
    'wal_level', 'server_version', 'data_checksums'
)
