UPDATE holdfast_share SET ended = 1 WHERE node IN (SELECT value FROM json_each(:nodes))
