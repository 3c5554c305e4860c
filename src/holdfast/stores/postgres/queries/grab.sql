-- MATERIALIZED: else the row locks could be taken once for each row of the join.  The state test
-- is written so that no partial index matches it: the way in is the primary key, whatever the
-- statistics say.  A repeat also accepts what this node already holds.
WITH chosen AS MATERIALIZED (
    SELECT t.id, w.version, w.deadline_s
    FROM unnest(:ids::bigint[], :versions::integer[], :deadlines_s::double precision[])
        AS w (id, version, deadline_s)
    JOIN {schema}.task AS t ON t.id = w.id
    WHERE t.ordering_key IS NULL AND (
        (t.version = w.version AND t.state + 0 = 1)
        OR (:repeat::boolean AND t.version = w.version + 1 AND t.state + 0 = 2 AND t.node = :node::text)
    )
    FOR NO KEY UPDATE OF t SKIP LOCKED
)
UPDATE {schema}.task AS t SET
    state = 2,
    version = c.version + 1,
    deliveries = t.deliveries + CASE t.state WHEN 1 THEN 1 ELSE 0 END,
    node = :node::text,
    deadline_at = m.now + c.deadline_s * interval '1 second'
FROM chosen AS c CROSS JOIN (SELECT {schema}.now() AS now) AS m
WHERE t.id = c.id
RETURNING
    t.id, t.version, t.kind, t.payload, t.attempts + 1, t.deliveries, t.priority, t.queue,
    t.partition, t.fairness_key, t.ordering_key, t.metadata, t.enqueued_at
