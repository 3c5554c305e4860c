SELECT due_at FROM holdfast_task
WHERE queue = :queue AND state = 0
  AND partition IN (SELECT value FROM json_each(:partitions))
ORDER BY due_at LIMIT 1
