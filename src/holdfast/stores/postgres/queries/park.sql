WITH chosen AS MATERIALIZED (
    SELECT w.version, t.place
    FROM unnest(:ids::bigint[], :versions::integer[]) AS w (id, version)
    CROSS JOIN LATERAL (
        SELECT t.ctid AS place FROM {schema}.task AS t
        WHERE t.id = w.id AND t.version = w.version AND t.state + 0 IN (1, 2)
        LIMIT 1
    ) AS t
)
UPDATE {schema}.task AS t SET
    state = 4, version = t.version + 1, arrived = NULL, node = NULL, deadline_at = NULL,
    error = :error::text
FROM chosen AS c
WHERE t.ctid = c.place AND t.version = c.version
RETURNING t.id
