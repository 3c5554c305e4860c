SELECT t.id, t.state, t.version
FROM unnest(:ids::bigint[]) AS w (id)
CROSS JOIN LATERAL (
    SELECT t.id, t.state, t.version FROM {schema}.task AS t WHERE t.id = w.id LIMIT 1
) AS t
