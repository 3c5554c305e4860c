SELECT extract(epoch FROM clock_timestamp() - a.xact_start)::double precision, a.pid
FROM pg_stat_activity AS a
WHERE a.backend_xmin IS NOT NULL AND a.xact_start IS NOT NULL AND a.pid <> pg_backend_pid()
ORDER BY age(a.backend_xmin) DESC, a.xact_start LIMIT 1
