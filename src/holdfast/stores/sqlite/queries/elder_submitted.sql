-- The eldest of a key that stands before this task and may be grabbed now, as far as it is known.
SELECT id, version, queue, partition, kind, priority, fairness_key, weight, ordering_key,
  NULL, arrived
FROM holdfast_task
WHERE queue = :queue AND ordering_key = :ordering_key AND id < :id AND state = 1
ORDER BY id LIMIT 1
