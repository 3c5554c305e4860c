-- The key is claimed first and the task inserted only by whoever claimed it.  A second caller
-- waits here for the first one's transaction.
WITH moment AS MATERIALIZED (
    SELECT n.now, coalesce(
        :due_at::timestamptz, n.now + :delay_s::double precision * interval '1 second'
    ) AS due_at
    FROM (SELECT {schema}.now() AS now) AS n
),
taken AS (
    INSERT INTO {schema}.key AS k (scope, name, task, until)
    SELECT
        :scope::text, :name::text, coalesce(:id::bigint, nextval('{schema}.task_id')),
        m.now + :period_s::double precision * interval '1 second'
    FROM moment AS m
    ON CONFLICT (scope, name) DO UPDATE SET task = excluded.task, until = excluded.until
    WHERE k.until <= {schema}.now()
    RETURNING k.task
)
INSERT INTO {schema}.task (
    id, queue, partition, kind, priority, state, arrived, due_at, enqueued_at,
    fairness_key, weight, ordering_key, metadata, payload
)
SELECT
    k.task,
    :queue::text, :partition::smallint, :kind::text, :priority::smallint,
    CASE WHEN d.due_at > d.now THEN 0 ELSE 1 END,
    CASE WHEN d.due_at > d.now THEN NULL ELSE pg_current_xact_id() END,
    CASE WHEN d.due_at > d.now THEN d.due_at END,
    d.now,
    :fairness_key::text, :weight::real, :ordering_key::text, :metadata::bytea, :payload::bytea
FROM taken AS k CROSS JOIN moment AS d
RETURNING id, state, due_at
