UPDATE holdfast_schedule SET
  version = version + 1, timing = :timing, kind = :kind, queue = :queue, priority = :priority,
  weight = :weight, partition = :partition, fairness_key = :fairness_key,
  ordering_key = :ordering_key, metadata = :metadata, payload = :payload, source = :source,
  paused = :paused, next_at = :next_at, last_at = :last_at, missed = :missed
WHERE name = :name AND version = :version RETURNING version
