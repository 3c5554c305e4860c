-- One snapshot: a task on its way to the archive is seen in exactly one of the two.
SELECT
    t.id, t.queue, t.partition, t.kind, t.state, t.version, t.priority, t.payload, t.attempts,
    t.deliveries, t.enqueued_at, t.due_at, t.deadline_at, NULL::timestamptz, t.node,
    t.fairness_key, t.ordering_key, t.metadata, t.error, NULL::bytea
FROM unnest(:ids::bigint[]) AS w (id) JOIN {schema}.task AS t ON t.id = w.id
UNION ALL
SELECT
    a.id, a.queue, a.partition, a.kind, a.state, a.version, a.priority, a.payload, a.attempts,
    a.deliveries, a.enqueued_at, NULL, NULL, a.finished_at, a.node,
    a.fairness_key, a.ordering_key, a.metadata, a.error, a.result
FROM unnest(:ids::bigint[]) AS w (id) JOIN {schema}.archive AS a ON a.id = w.id
