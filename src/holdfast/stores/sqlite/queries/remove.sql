DELETE FROM holdfast_task WHERE id IN (SELECT value FROM json_each(:ids))
