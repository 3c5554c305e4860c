-- A task that may run at once arrives under its own number: ids and arrivals share one counter, the
-- one that SQLite keeps for the ids, so that an insert touches no other row.
INSERT INTO holdfast_task
  (queue, partition, kind, state, priority, enqueued_at, due_at,
   fairness_key, weight, ordering_key, metadata, payload, arrived)
VALUES
  (:queue, :partition, :kind, :state, :priority, :now, :due_at,
   :fairness_key, :weight, :ordering_key, :metadata, :payload,
   CASE :state WHEN 1 THEN (SELECT seq + 1 FROM sqlite_sequence WHERE name = 'holdfast_task')
   ELSE 0 END)
RETURNING id
