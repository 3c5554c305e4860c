INSERT INTO holdfast_task
  (queue, partition, kind, state, priority, arrived, enqueued_at, due_at,
   fairness_key, weight, ordering_key, metadata, payload)
VALUES
  (:queue, :partition, :kind, :state, :priority, :arrived, :now, :due_at,
   :fairness_key, :weight, :ordering_key, :metadata, :payload)
RETURNING id
