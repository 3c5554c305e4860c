UPDATE holdfast_lease SET until = :until WHERE node = :node RETURNING node
