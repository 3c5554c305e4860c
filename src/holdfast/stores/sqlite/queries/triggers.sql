SELECT t.id, t.version, t.queue, t.partition, t.kind, t.priority, t.fairness_key, t.weight,
       t.ordering_key, NULL, t.arrived, t.state, t.losses
FROM json_each(:ids) j CROSS JOIN holdfast_task t ON t.id = j.value
