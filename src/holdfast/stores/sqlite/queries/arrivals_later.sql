-- Two ranges instead of one row value: SQLite cannot seek to (arrived, id) in one step, and would
-- walk over all tasks of one large enqueue for each page of it.
SELECT id, version, queue, partition, kind, priority, fairness_key, weight, ordering_key, NULL,
       arrived
FROM holdfast_task
WHERE queue = :queue AND partition = :partition AND state = 1 AND arrived > :arrived
ORDER BY arrived, id LIMIT :limit
