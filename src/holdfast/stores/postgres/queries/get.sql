-- One snapshot: a task on its way to the archive is seen in exactly one of the two.
SELECT t.*
FROM unnest(:ids::bigint[]) AS w (id)
CROSS JOIN LATERAL (
    SELECT
        t.id, t.queue, t.partition, t.kind, t.state, t.version, t.priority, t.payload, t.attempts,
        t.deliveries, t.enqueued_at, t.due_at, t.deadline_at, NULL::timestamptz, t.node,
        t.fairness_key, t.ordering_key, t.metadata, t.error, NULL::bytea
    FROM {schema}.task AS t WHERE t.id = w.id LIMIT 1
) AS t
UNION ALL
SELECT a.*
FROM unnest(:ids::bigint[]) AS w (id)
CROSS JOIN LATERAL (
    SELECT
        a.id, a.queue, a.partition, a.kind, a.state, a.version, a.priority, a.payload, a.attempts,
        a.deliveries, a.enqueued_at, NULL::timestamptz, NULL::timestamptz, a.finished_at, a.node,
        a.fairness_key, a.ordering_key, a.metadata, a.error, a.result
    FROM {schema}.archive AS a WHERE a.id = w.id LIMIT 1
) AS a
