DELETE FROM holdfast_lease WHERE node IN (SELECT value FROM json_each(:nodes))
