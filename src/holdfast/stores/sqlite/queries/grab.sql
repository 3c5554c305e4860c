UPDATE holdfast_task
SET state = 2, version = version + 1, deliveries = deliveries + 1, node = :node,
    deadline_at = :deadline_at
WHERE id IN (SELECT value FROM json_each(:ids))
