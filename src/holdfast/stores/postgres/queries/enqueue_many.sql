-- Rows are numbered in the order of the arrays.  `ids` holds NULL for a task without a key.  A column
-- in which all tasks are alike comes as one value and an empty array: unnest fills that with NULL.
-- The time is a sub-select, so that it is asked for once and not for every row.
INSERT INTO {schema}.task (
    id, queue, partition, kind, priority, state, arrived, due_at, enqueued_at,
    fairness_key, weight, ordering_key, metadata, payload
)
SELECT
    coalesce(d.id, nextval('{schema}.task_id')),
    coalesce(d.queue, :queue::text), d.partition, coalesce(d.kind, :kind::text),
    coalesce(d.priority, :priority::smallint),
    CASE WHEN d.due_at > d.now THEN 0 ELSE 1 END,
    CASE WHEN d.due_at > d.now THEN NULL ELSE pg_current_xact_id() END,
    CASE WHEN d.due_at > d.now THEN d.due_at END,
    d.now,
    coalesce(d.fairness_key, :fairness_key::text), coalesce(d.weight, :weight::real),
    coalesce(d.ordering_key, :ordering_key::text), coalesce(d.metadata, :metadata::bytea),
    d.payload
FROM (
    SELECT n.*, m.now, coalesce(
        n.at, :due_at::timestamptz,
        m.now + coalesce(n.delay_s, :delay_s::double precision) * interval '1 second'
    ) AS due_at
    FROM (SELECT (SELECT {schema}.now()) AS now) AS m
    CROSS JOIN unnest(
        :ids::bigint[], :queues::text[], :partitions::smallint[], :kinds::text[],
        :priorities::smallint[], :delays_s::double precision[], :due_ats::timestamptz[],
        :fairness_keys::text[], :weights::real[], :ordering_keys::text[], :metadatas::bytea[],
        :payloads::bytea[]
    ) AS n (
        id, queue, partition, kind, priority, delay_s, at,
        fairness_key, weight, ordering_key, metadata, payload
    )
) AS d
RETURNING id, state, due_at
