-- The rows are held by this transaction.  A person's wish starts the counting of losses anew:
-- the task gets its full number of deliveries.
WITH chosen AS MATERIALIZED (
    SELECT c.*, t.place
    FROM unnest(
        :ids::bigint[], :versions::integer[], :states::smallint[], :errors::text[],
        :delays_s::double precision[]
    ) AS c (id, version, state, error, delay_s)
    CROSS JOIN LATERAL (
        SELECT t.ctid AS place FROM {schema}.task AS t
        WHERE t.id = c.id AND t.version = c.version LIMIT 1
    ) AS t
)
UPDATE {schema}.task AS t SET
    state = c.state,
    version = t.version + 1,
    losses = 0,
    node = NULL,
    arrived = CASE WHEN c.state = 1 THEN pg_current_xact_id() END,
    due_at = CASE WHEN c.state = 0 THEN {schema}.now() + c.delay_s * interval '1 second' END,
    deadline_at = NULL,
    error = coalesce(c.error, t.error)
FROM chosen AS c
WHERE t.ctid = c.place
RETURNING
    t.id, t.version, t.queue, t.partition, t.kind, t.priority, t.fairness_key, t.weight,
    t.ordering_key, NULL::timestamptz, coalesce(t.arrived::text::bigint, 0)
