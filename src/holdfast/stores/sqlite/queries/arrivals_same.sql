SELECT id, version, queue, partition, kind, priority, fairness_key, weight, ordering_key, NULL,
       arrived
FROM holdfast_task
WHERE queue = :queue AND partition = :partition AND state = 1
  AND arrived = :arrived AND id > :id
ORDER BY id LIMIT :limit
