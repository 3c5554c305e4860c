-- The caller sorts the keys, so that two batches never wait for each other in a circle.
INSERT INTO {schema}.key AS k (scope, name, task, until)
SELECT n.scope, n.name, n.task, m.now + n.period_s * interval '1 second'
FROM (SELECT {schema}.now() AS now) AS m
CROSS JOIN unnest(
    :scopes::text[], :names::text[], :tasks::bigint[], :periods_s::double precision[]
) AS n (scope, name, task, period_s)
ON CONFLICT (scope, name) DO UPDATE SET task = excluded.task, until = excluded.until
WHERE k.until <= {schema}.now()
RETURNING k.task
