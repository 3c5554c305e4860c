-- One key, with scalar parameters: drivers differ in how they bind arrays.
SELECT k.task, coalesce(t.state, a.state, 3), t.due_at
FROM {schema}.key AS k
LEFT JOIN {schema}.task AS t ON t.id = k.task
LEFT JOIN {schema}.archive AS a ON a.id = k.task
WHERE k.scope = :scope::text AND k.name = :name::text
