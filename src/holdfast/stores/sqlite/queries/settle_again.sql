-- RETRIED, REPEATED, PARKED: the node stays in the row, so that a repeated settle knows its own.
UPDATE holdfast_task
SET state = :state, version = version + 1, attempts = attempts * :keeps + :counts,
    losses = losses * :keeps_losses, arrived = :arrived, due_at = :due_at, deadline_at = NULL,
    node = :node, error = coalesce(:error, error)
WHERE id = :id
