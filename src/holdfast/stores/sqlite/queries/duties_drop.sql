UPDATE holdfast_duty SET holder = NULL, due_at = :now
WHERE holder IN (SELECT value FROM json_each(:nodes))
