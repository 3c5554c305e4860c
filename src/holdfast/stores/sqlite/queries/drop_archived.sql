DELETE FROM holdfast_archive WHERE id IN (SELECT value FROM json_each(:ids))
