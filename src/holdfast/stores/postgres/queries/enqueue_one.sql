INSERT INTO {schema}.task (
    id, queue, partition, kind, priority, state, arrived, due_at, enqueued_at,
    fairness_key, weight, ordering_key, metadata, payload
)
SELECT
    coalesce(:id::bigint, nextval('{schema}.task_id')),
    :queue::text, :partition::smallint, :kind::text, :priority::smallint,
    CASE WHEN d.due_at > d.now THEN 0 ELSE 1 END,
    CASE WHEN d.due_at > d.now THEN NULL ELSE pg_current_xact_id() END,
    CASE WHEN d.due_at > d.now THEN d.due_at END,
    d.now,
    :fairness_key::text, :weight::real, :ordering_key::text, :metadata::bytea, :payload::bytea
FROM (
    SELECT n.now, coalesce(
        :due_at::timestamptz, n.now + :delay_s::double precision * interval '1 second'
    ) AS due_at
    FROM (SELECT {schema}.now() AS now) AS n
) AS d
RETURNING id, state, due_at
