-- Finished rows leave for the archive in the statement that finishes them.  LIMIT keeps the
-- look-up by id out of the join, and the join by ctid has one order (see grab.sql).
WITH chosen AS MATERIALIZED (
    SELECT o.version, o.state, o.error, o.result, o.keep, t.place
    FROM (
        SELECT
            o.id, coalesce(o.version, :version::integer) AS version,
            coalesce(o.state, :state::smallint) AS state, coalesce(o.error, :error::text) AS error,
            coalesce(o.result, :result::bytea) AS result, coalesce(o.keep, :keep::boolean) AS keep
        FROM unnest(
            :ids::bigint[], :versions::integer[], :states::smallint[], :errors::text[],
            :results::bytea[], :keeps::boolean[]
        ) AS o (id, version, state, error, result, keep)
    ) AS o
    CROSS JOIN LATERAL (
        SELECT t.ctid AS place FROM {schema}.task AS t
        WHERE t.id = o.id AND t.version = o.version
            AND (:any_state::boolean OR t.state + 0 = 2)
        LIMIT 1
    ) AS t
),
finished AS (
    DELETE FROM {schema}.task AS t USING chosen AS o
    WHERE t.ctid = o.place AND t.version = o.version
    RETURNING
        t.id, t.enqueued_at, t.version + 1 AS version, t.attempts, t.deliveries, t.partition,
        t.priority, o.state, t.queue, t.kind, t.fairness_key, t.ordering_key,
        coalesce(o.error, t.error) AS error, t.metadata, t.payload, o.result, o.keep
),
kept AS (
    INSERT INTO {schema}.archive (
        id, enqueued_at, finished_at, version, attempts, deliveries, partition, priority, state,
        queue, kind, node, fairness_key, ordering_key, error, metadata, payload, result
    )
    SELECT
        f.id, f.enqueued_at, (SELECT {schema}.now()), f.version, f.attempts, f.deliveries, f.partition,
        f.priority, f.state, f.queue, f.kind, :node::text, f.fairness_key, f.ordering_key, f.error,
        f.metadata, f.payload, f.result
    FROM finished AS f
    WHERE f.keep
),
freed AS (
    DELETE FROM {schema}.key AS k
    USING finished AS f CROSS JOIN LATERAL (
        SELECT k.ctid AS place FROM {schema}.key AS k
        WHERE k.task = f.id AND k.until IS NULL LIMIT 1
    ) AS g
    WHERE NOT f.keep AND k.ctid = g.place
)
SELECT id FROM finished
