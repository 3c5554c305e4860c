SELECT a.id, a.version
FROM unnest(:ids::bigint[]) AS w (id)
CROSS JOIN LATERAL (
    SELECT a.id, a.version FROM {schema}.archive AS a WHERE a.id = w.id LIMIT 1
) AS a
