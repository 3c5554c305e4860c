-- Locked, so that the shares of a limit are read and written by one node at a time.
SELECT l.name, l.queue, l.concurrency, l.rate, l.kind, l.key, l.burst, l.local
FROM {schema}.limit_rule AS l
WHERE l.queue = :queue::text AND l.name = ANY (:names::text[])
ORDER BY l.name
FOR UPDATE
