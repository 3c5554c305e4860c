SELECT id, version, kind, coalesce(node, ''), partition, ordering_key, fairness_key
FROM holdfast_task INDEXED BY holdfast_task_processing
WHERE state = 2 AND queue = :queue
ORDER BY id
