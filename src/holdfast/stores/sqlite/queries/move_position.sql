UPDATE holdfast_partition SET position_arrived = :arrived, position_id = :id
WHERE queue = :queue AND partition = :partition
