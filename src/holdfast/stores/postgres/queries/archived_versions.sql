SELECT a.id, a.version
FROM unnest(:ids::bigint[]) AS w (id) JOIN {schema}.archive AS a ON a.id = w.id
