-- Attempts that go on: RETRIED to WAITING, REPEATED to SUBMITTED, PARKED to ERROR.  The node stays
-- in the row, so that a repeated settle knows its own.
WITH chosen AS MATERIALIZED (
    SELECT o.*, t.place
    FROM (
        SELECT
            o.id, coalesce(o.version, :version::integer) AS version,
            coalesce(o.state, :state::smallint) AS state, coalesce(o.error, :error::text) AS error,
            o.delay_s, o.counts, o.resets, o.forgives
        FROM unnest(
            :ids::bigint[], :versions::integer[], :states::smallint[], :errors::text[],
            :delays_s::double precision[], :counts::integer[], :resets::boolean[],
            :forgives::boolean[]
        ) AS o (id, version, state, error, delay_s, counts, resets, forgives)
    ) AS o
    CROSS JOIN LATERAL (
        SELECT t.ctid AS place FROM {schema}.task AS t
        WHERE t.id = o.id AND t.version = o.version AND t.state + 0 = 2
        LIMIT 1
    ) AS t
)
UPDATE {schema}.task AS t SET
    state = o.state,
    version = t.version + 1,
    attempts = CASE WHEN o.resets THEN 0 ELSE t.attempts + o.counts END,
    losses = CASE WHEN o.forgives THEN 0 ELSE t.losses END,
    arrived = CASE WHEN o.state = 1 THEN pg_current_xact_id() END,
    due_at = CASE WHEN o.state = 0 THEN {schema}.now() + o.delay_s * interval '1 second' END,
    deadline_at = NULL,
    node = :node::text,
    error = coalesce(o.error, t.error)
FROM chosen AS o
WHERE t.ctid = o.place AND t.version = o.version
RETURNING t.id
