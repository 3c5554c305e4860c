UPDATE holdfast_partition SET owner = NULL
WHERE owner IN (SELECT value FROM json_each(:nodes))
