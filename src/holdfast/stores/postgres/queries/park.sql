UPDATE {schema}.task AS t SET
    state = 4, version = t.version + 1, arrived = NULL, deadline_at = NULL, error = :error::text
FROM unnest(:ids::bigint[], :versions::integer[]) AS w (id, version)
WHERE t.id = w.id AND t.version = w.version AND t.state + 0 IN (1, 2)
RETURNING t.id
