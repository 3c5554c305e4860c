SELECT node, queues, kinds, pid, until, number, started_at, facts, asked
FROM holdfast_lease ORDER BY node
