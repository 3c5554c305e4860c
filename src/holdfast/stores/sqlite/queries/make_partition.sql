INSERT INTO holdfast_partition (queue, partition) VALUES (:queue, :partition)
ON CONFLICT DO NOTHING
