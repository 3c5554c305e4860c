INSERT INTO holdfast_archive
  (id, queue, partition, kind, state, version, priority, attempts, deliveries, enqueued_at,
   due_at, deadline_at, finished_at, node, fairness_key, ordering_key, error, metadata, result,
   payload)
SELECT id, queue, partition, kind, :state, version + 1, priority, attempts, deliveries,
       enqueued_at, due_at, deadline_at, :now, :node, fairness_key, ordering_key,
       coalesce(:error, error), metadata, :result, payload
FROM holdfast_task WHERE id = :id
