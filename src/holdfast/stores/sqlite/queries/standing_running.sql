SELECT id, kind, fairness_key, node
FROM holdfast_task INDEXED BY holdfast_task_processing
WHERE state = 2 AND queue = :queue
ORDER BY id LIMIT :limit
