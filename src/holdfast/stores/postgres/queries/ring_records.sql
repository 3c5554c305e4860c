SELECT r.number, r.writer, r.body FROM {schema}.ring_record AS r
WHERE r.ring = :ring::text AND r.number > :after::bigint
ORDER BY r.number LIMIT :limit::integer
