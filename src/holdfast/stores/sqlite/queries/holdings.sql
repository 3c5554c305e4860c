SELECT partition, owner, epoch, wish, position_arrived, position_id
FROM holdfast_partition WHERE queue = :queue ORDER BY partition
