-- A task that is kept shorter than its key is answered as DONE.
SELECT k.scope, k.name, k.task, coalesce(t.state, a.state, 3), t.due_at
FROM unnest(:scopes::text[], :names::text[]) AS n (scope, name)
JOIN {schema}.key AS k ON k.scope = n.scope AND k.name = n.name
LEFT JOIN {schema}.task AS t ON t.id = k.task
LEFT JOIN {schema}.archive AS a ON a.id = k.task
