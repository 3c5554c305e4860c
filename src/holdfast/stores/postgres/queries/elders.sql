-- The eldest of each key that stands before this task and may be grabbed now, as far as it is known.
SELECT t.*
FROM unnest(:queues::text[], :ordering_keys::text[], :ids::bigint[]) AS w (queue, ordering_key, id)
CROSS JOIN LATERAL (
    SELECT
        t.id, t.version, t.queue, t.partition, t.kind, t.priority, t.fairness_key, t.weight,
        t.ordering_key, NULL::timestamptz, t.arrived
    FROM {schema}.task AS t
    WHERE t.queue = w.queue AND t.ordering_key = w.ordering_key AND t.ordering_key IS NOT NULL
        AND t.id < w.id AND t.state + 0 = 1
    ORDER BY t.id LIMIT 1
) AS t
