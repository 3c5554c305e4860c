SELECT node, queues, kinds, pid, until FROM holdfast_lease ORDER BY node
