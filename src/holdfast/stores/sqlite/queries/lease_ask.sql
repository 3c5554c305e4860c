UPDATE holdfast_lease SET asked = :what WHERE node = :node RETURNING node
