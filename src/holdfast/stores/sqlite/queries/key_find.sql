SELECT k.task, coalesce(t.state, a.state, 3), t.due_at
FROM holdfast_key k
LEFT JOIN holdfast_task t ON t.id = k.task
LEFT JOIN holdfast_archive a ON a.id = k.task
WHERE k.scope = :scope AND k.name = :name
  AND (k.until > :now OR (k.until IS NULL AND coalesce(t.id, a.id) IS NOT NULL))
