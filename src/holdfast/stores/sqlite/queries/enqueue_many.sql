-- The ids are counted on from `last_id` under the write lock, so that no row has to be returned.
INSERT INTO holdfast_task
  (id, queue, partition, kind, state, priority, arrived, enqueued_at, due_at,
   fairness_key, weight, ordering_key, metadata, payload)
VALUES
  (:id, :queue, :partition, :kind, :state, :priority, :arrived, :now, :due_at,
   :fairness_key, :weight, :ordering_key, :metadata, :payload)
