SELECT id, version, kind, node, partition, ordering_key, fairness_key
FROM holdfast_task
WHERE state = 2 AND node = :node
ORDER BY id
