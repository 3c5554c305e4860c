-- Finished rows leave for the archive in the statement that finishes them.
WITH finished AS (
    DELETE FROM {schema}.task AS t
    USING unnest(
        :ids::bigint[], :versions::integer[], :states::smallint[], :errors::text[],
        :results::bytea[], :keeps::boolean[]
    ) AS o (id, version, state, error, result, keep)
    WHERE t.id = o.id AND t.version = o.version AND (:any_state::boolean OR t.state + 0 = 2)
    RETURNING
        t.id, t.enqueued_at, t.version + 1 AS version, t.attempts, t.deliveries, t.partition,
        t.priority, o.state, t.queue, t.kind, t.node, t.fairness_key, t.ordering_key,
        CASE o.state WHEN 3 THEN o.error ELSE coalesce(o.error, t.error) END AS error, t.metadata,
        t.payload, o.result, o.keep
),
kept AS (
    INSERT INTO {schema}.archive (
        id, enqueued_at, finished_at, version, attempts, deliveries, partition, priority, state,
        queue, kind, node, fairness_key, ordering_key, error, metadata, payload, result
    )
    SELECT
        f.id, f.enqueued_at, m.now, f.version, f.attempts, f.deliveries, f.partition, f.priority,
        f.state, f.queue, f.kind, f.node, f.fairness_key, f.ordering_key, f.error, f.metadata,
        f.payload, f.result
    FROM finished AS f CROSS JOIN (SELECT {schema}.now() AS now) AS m
    WHERE f.keep
),
freed AS (
    DELETE FROM {schema}.key AS k USING finished AS f
    WHERE NOT f.keep AND k.task = f.id AND k.until IS NULL
)
SELECT id FROM finished
