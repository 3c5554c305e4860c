SELECT
    t.id, t.version + 1, t.queue, t.partition, t.kind, t.priority, t.fairness_key, t.weight,
    t.ordering_key
FROM unnest(:ids::bigint[]) AS w (id) JOIN {schema}.task AS t ON t.id = w.id
