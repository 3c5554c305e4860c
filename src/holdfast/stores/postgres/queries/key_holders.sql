-- A task that is kept shorter than its key is answered as DONE.
SELECT k.scope, k.name, k.task, coalesce(t.state, a.state, 3), t.due_at
FROM unnest(:scopes::text[], :names::text[]) AS n (scope, name)
CROSS JOIN LATERAL (
    SELECT k.* FROM {schema}.key AS k WHERE k.scope = n.scope AND k.name = n.name LIMIT 1
) AS k
LEFT JOIN LATERAL (
    SELECT t.state, t.due_at FROM {schema}.task AS t WHERE t.id = k.task LIMIT 1
) AS t ON true
LEFT JOIN LATERAL (
    SELECT a.state FROM {schema}.archive AS a WHERE a.id = k.task LIMIT 1
) AS a ON true
