UPDATE holdfast_lease SET until = min(until, :now)
WHERE node IN (SELECT value FROM json_each(:nodes))
