UPDATE holdfast_task SET deadline_at = :deadline_at
WHERE id IN (SELECT value FROM json_each(:ids))
