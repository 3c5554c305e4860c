SELECT id FROM holdfast_task
WHERE queue = :queue AND state = 0 AND due_at <= :now
  AND partition IN (SELECT value FROM json_each(:partitions))
ORDER BY due_at, id LIMIT :limit
