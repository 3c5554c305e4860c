-- Asked by the ids of nodes, so that the partial index is walked at those nodes only.  A lease that
-- has ended is locked: a node that comes back renews it either before, and keeps its tasks, or after.
WITH ended AS MATERIALIZED (
    SELECT n.id
    FROM unnest(:nodes::text[]) AS n (id)
    CROSS JOIN LATERAL (
        SELECT FROM {schema}.node AS l
        WHERE l.id = n.id AND NOT {schema}.is_alive(l.until, l.lease)
        FOR NO KEY UPDATE
    ) AS l
),
forgotten AS MATERIALIZED (
    SELECT n.id
    FROM unnest(:nodes::text[]) AS n (id)
    WHERE NOT EXISTS (SELECT FROM {schema}.node AS l WHERE l.id = n.id)
),
lost AS MATERIALIZED (
    SELECT t.place
    FROM (SELECT e.id FROM ended AS e UNION ALL SELECT f.id FROM forgotten AS f) AS n
    CROSS JOIN LATERAL (
        SELECT t.ctid AS place FROM {schema}.task AS t
        WHERE t.state = 2 AND t.node = n.id
        LIMIT :limit::integer
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS t
    LIMIT :limit::integer
)
UPDATE {schema}.task AS t SET
    state = CASE WHEN t.losses + 1 >= :deliveries_max::integer THEN 4 ELSE 1 END,
    version = t.version + 1,
    losses = t.losses + 1,
    node = NULL,
    deadline_at = NULL,
    arrived = CASE
        WHEN t.losses + 1 >= :deliveries_max::integer THEN NULL ELSE pg_current_xact_id()
    END,
    error = CASE
        WHEN t.losses + 1 >= :deliveries_max::integer
        THEN 'delivered ' || (t.losses + 1) || ' times without an outcome; the last node was '
            || t.node
        ELSE t.error
    END
FROM lost AS l
WHERE t.ctid = l.place
RETURNING
    t.id, t.version, t.queue, t.partition, t.kind, t.priority, t.fairness_key, t.weight,
    t.ordering_key, NULL::timestamptz, t.arrived
