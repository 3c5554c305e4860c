-- The columns of an enqueue, given as they are; arrival number 1 stands above every new position.
INSERT INTO holdfast_task
  (queue, partition, kind, state, priority, arrived, enqueued_at, due_at,
   fairness_key, weight, ordering_key, metadata, payload)
VALUES
  (:queue, :partition, :kind, :state, :priority, 1, :now, :due_at,
   :fairness_key, :weight, :ordering_key, :metadata, :payload)
RETURNING id
