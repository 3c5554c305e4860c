SELECT t.id, t.version, t.kind, t.payload, t.attempts + 1, t.deliveries, t.priority, t.queue,
       t.partition, t.fairness_key, t.weight, t.ordering_key, t.metadata, t.enqueued_at, t.losses,
       t.state, t.node
FROM json_each(:ids) j CROSS JOIN holdfast_task t ON t.id = j.value
ORDER BY t.id
