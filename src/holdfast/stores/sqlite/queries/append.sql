-- Appending an entry again changes nothing: a record may be repeated.
INSERT INTO holdfast_backlog
  (queue, partition, priority, kind, lane, pass, seq, task, version, fairness_key, weight,
   ordering_key, arrived)
VALUES
  (:queue, :partition, :priority, :kind, :lane, :pass, :seq, :task, :version, :fairness_key, :weight,
   :ordering_key, :arrived)
ON CONFLICT DO NOTHING
