-- The ids are counted on from `last_arrived` under the write lock, so that no row has to be returned.
INSERT INTO holdfast_task
  (id, queue, partition, kind, state, priority, enqueued_at, due_at,
   fairness_key, weight, ordering_key, metadata, payload, arrived)
VALUES
  (:id, :queue, :partition, :kind, :state, :priority, :now, :due_at,
   :fairness_key, :weight, :ordering_key, :metadata, :payload, :arrived)
