-- MATERIALIZED: else the row locks could be taken once for each row of the join.  The state test
-- is written so that no partial index matches it.  A sub-select that locks is never merged into
-- the join, and with sequential scans off a join by ctid has one order only: so the way in is
-- the primary key, row by row, whatever the statistics say.
WITH chosen AS MATERIALIZED (
    SELECT t.place, w.version
    FROM (
        SELECT w.id, coalesce(w.version, :version::integer) AS version
        FROM unnest(:ids::bigint[], :versions::integer[]) AS w (id, version)
    ) AS w
    CROSS JOIN LATERAL (
        SELECT t.ctid AS place FROM {schema}.task AS t
        WHERE t.id = w.id AND t.ordering_key IS NULL
            AND t.version = w.version AND t.state + 0 = 1
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS t
)
UPDATE {schema}.task AS t SET
    state = 2,
    version = c.version + 1,
    deliveries = t.deliveries + 1,
    node = :node::text,
    deadline_at = (SELECT {schema}.now()) + interval '1 second'
        * (:deadlines_s::double precision[])[array_position(:kinds::text[], t.kind)]
FROM chosen AS c
WHERE t.ctid = c.place
RETURNING
    t.id, t.version, t.kind, t.payload, t.attempts + 1, t.deliveries, t.priority, t.queue,
    t.partition, t.fairness_key, t.weight, t.ordering_key, t.metadata, t.enqueued_at,
    t.losses
