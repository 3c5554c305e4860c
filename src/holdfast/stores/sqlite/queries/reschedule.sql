UPDATE holdfast_task
SET state = 0, version = version + 1, due_at = :due_at, node = NULL, deadline_at = NULL,
    losses = 0, error = coalesce(:error, error)
WHERE id = :id
