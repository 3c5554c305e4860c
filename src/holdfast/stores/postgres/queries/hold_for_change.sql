SELECT t.id, t.state, t.version
FROM unnest(:ids::bigint[]) AS w (id)
JOIN {schema}.task AS t ON t.id = w.id
FOR NO KEY UPDATE OF t
