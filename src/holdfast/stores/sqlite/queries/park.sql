UPDATE holdfast_task
SET state = 4, version = version + 1, node = NULL, deadline_at = NULL, error = :error
WHERE id IN (SELECT value FROM json_each(:ids))
