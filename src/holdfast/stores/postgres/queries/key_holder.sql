-- One key, with scalar parameters: drivers differ in how they bind arrays.
SELECT k.task, coalesce(t.state, a.state, 3), t.due_at
FROM {schema}.key AS k
LEFT JOIN LATERAL (
    SELECT t.state, t.due_at FROM {schema}.task AS t WHERE t.id = k.task LIMIT 1
) AS t ON true
LEFT JOIN LATERAL (
    SELECT a.state FROM {schema}.archive AS a WHERE a.id = k.task LIMIT 1
) AS a ON true
WHERE k.scope = :scope::text AND k.name = :name::text
