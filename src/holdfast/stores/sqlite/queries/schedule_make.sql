INSERT INTO holdfast_schedule
  (name, version, timing, kind, queue, priority, weight, partition, fairness_key,
  ordering_key, metadata, payload, source, paused, next_at, last_at, missed)
VALUES
  (:name, :version + 1, :timing, :kind, :queue, :priority, :weight, :partition, :fairness_key,
   :ordering_key, :metadata, :payload, :source, :paused, :next_at, :last_at, :missed)
ON CONFLICT (name) DO NOTHING RETURNING version
