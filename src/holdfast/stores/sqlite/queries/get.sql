SELECT t.id, t.queue, t.partition, t.kind, t.state, t.version, t.priority, t.payload, t.attempts,
       t.deliveries, t.enqueued_at, t.due_at, t.deadline_at, NULL, t.node, t.fairness_key,
       t.ordering_key, t.metadata, t.error, NULL
FROM json_each(:ids) j CROSS JOIN holdfast_task t ON t.id = j.value
UNION ALL
SELECT a.id, a.queue, a.partition, a.kind, a.state, a.version, a.priority, a.payload, a.attempts,
       a.deliveries, a.enqueued_at, a.due_at, a.deadline_at, a.finished_at, a.node,
       a.fairness_key, a.ordering_key, a.metadata, a.error, a.result
FROM json_each(:ids) j CROSS JOIN holdfast_archive a ON a.id = j.value
