SELECT name, version, timing, kind, queue, priority, weight, partition, fairness_key,
  ordering_key, metadata, payload, source, paused, next_at, last_at, missed
FROM holdfast_schedule
WHERE :names IS NULL OR name IN (SELECT value FROM json_each(:names))
ORDER BY name
