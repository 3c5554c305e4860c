SELECT id FROM holdfast_task
WHERE state = 2 AND node IN (SELECT value FROM json_each(:nodes))
LIMIT :limit
