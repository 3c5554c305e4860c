UPDATE holdfast_task
SET state = 1, version = version + 1, arrived = :arrived, node = NULL, deadline_at = NULL,
    losses = losses * :keeps + :loses, error = coalesce(:error, error)
WHERE id IN (SELECT value FROM json_each(:ids))
