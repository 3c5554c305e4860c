SELECT l.name, l.queue, l.concurrency, l.rate, l.kind, l.key, l.burst, l.local
FROM {schema}.limit_rule AS l
WHERE l.queue = :queue::text
ORDER BY l.name
