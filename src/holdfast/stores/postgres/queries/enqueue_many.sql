-- Rows are numbered in the order of the arrays.  `ids` holds NULL for a task without a key.
INSERT INTO {schema}.task (
    id, queue, partition, kind, priority, state, arrived, due_at, enqueued_at,
    fairness_key, weight, ordering_key, metadata, payload
)
SELECT
    coalesce(d.id, nextval('{schema}.task_id')),
    d.queue, d.partition, d.kind, d.priority,
    CASE WHEN d.due_at > d.now THEN 0 ELSE 1 END,
    CASE WHEN d.due_at > d.now THEN NULL ELSE pg_current_xact_id() END,
    CASE WHEN d.due_at > d.now THEN d.due_at END,
    d.now,
    d.fairness_key, d.weight, d.ordering_key, d.metadata, d.payload
FROM (
    SELECT n.*, m.now, coalesce(n.at, m.now + n.delay_s * interval '1 second') AS due_at
    FROM (SELECT {schema}.now() AS now) AS m
    CROSS JOIN unnest(
        :ids::bigint[], :queues::text[], :partitions::smallint[], :kinds::text[],
        :priorities::smallint[], :delays_s::double precision[], :due_ats::timestamptz[],
        :fairness_keys::text[], :weights::real[], :ordering_keys::text[], :metadata::bytea[],
        :payloads::bytea[]
    ) AS n (
        id, queue, partition, kind, priority, delay_s, at,
        fairness_key, weight, ordering_key, metadata, payload
    )
) AS d
RETURNING id, state, due_at
