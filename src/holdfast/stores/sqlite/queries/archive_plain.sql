-- The same as `archive` for many tasks that ended alike, without a result or an error of their own.
INSERT INTO holdfast_archive
  (id, queue, partition, kind, state, version, priority, attempts, deliveries, enqueued_at,
   due_at, deadline_at, finished_at, node, fairness_key, ordering_key, error, metadata, result,
   payload)
SELECT t.id, queue, partition, kind, :state, version + 1, priority, attempts, deliveries,
       enqueued_at, due_at, deadline_at, :now, :node, fairness_key, ordering_key,
       error, metadata, NULL, payload
FROM json_each(:ids) j CROSS JOIN holdfast_task t ON t.id = j.value
