SELECT name, version, timing, kind, queue, priority, weight, partition, fairness_key,
  ordering_key, metadata, payload, source, paused, next_at, last_at, missed
FROM holdfast_schedule
WHERE paused = 0 AND next_at <= :now
ORDER BY next_at, name
LIMIT :limit
