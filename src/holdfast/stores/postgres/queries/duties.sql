SELECT
    d.name, d.number, d.holder,
    extract(epoch FROM d.due_at - {schema}.now())::double precision
FROM {schema}.duty AS d ORDER BY d.name
