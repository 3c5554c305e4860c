WITH chosen AS MATERIALIZED (
    SELECT w.version, t.place
    FROM unnest(:ids::bigint[], :versions::integer[]) AS w (id, version)
    CROSS JOIN LATERAL (
        SELECT t.ctid AS place FROM {schema}.task AS t
        WHERE t.id = w.id AND t.version = w.version AND t.state + 0 = 2
        LIMIT 1
    ) AS t
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
        THEN 'delivered ' || (t.losses + 1) || ' times without an outcome before its deadline'
        ELSE t.error
    END
FROM chosen AS c
WHERE t.ctid = c.place AND t.version = c.version
RETURNING
    t.id, t.version, t.queue, t.partition, t.kind, t.priority, t.fairness_key, t.weight,
    t.ordering_key, NULL::timestamptz, t.arrived
