SELECT t.*
FROM unnest(:ids::bigint[]) AS w (id)
CROSS JOIN LATERAL (
    SELECT
        t.id, t.version + 1, t.queue, t.partition, t.kind, t.priority, t.fairness_key, t.weight,
        t.ordering_key
    FROM {schema}.task AS t WHERE t.id = w.id LIMIT 1
) AS t
