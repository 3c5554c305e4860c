SELECT id, queue, partition, kind, state, version, priority, payload, attempts, deliveries,
       enqueued_at, due_at, deadline_at, finished_at, node, fairness_key, ordering_key, metadata, error,
       result
FROM holdfast_archive
WHERE id > :after
  AND (:states IS NULL OR state IN (SELECT value FROM json_each(:states)))
  AND (:queues IS NULL OR queue IN (SELECT value FROM json_each(:queues)))
  AND (:kinds IS NULL OR kind IN (SELECT value FROM json_each(:kinds)))
  AND (:fairness_keys IS NULL OR fairness_key IN (SELECT value FROM json_each(:fairness_keys)))
ORDER BY id LIMIT :limit
