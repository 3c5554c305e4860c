UPDATE holdfast_schedule SET version = version + 1, next_at = NULL
WHERE name = :name AND next_at IS NOT NULL
