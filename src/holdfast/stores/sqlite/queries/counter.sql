INSERT INTO holdfast_counter (queue, partition, priority, kind, passes)
VALUES (:queue, :partition, :priority, :kind, :passes)
ON CONFLICT (queue, partition, priority, kind) DO UPDATE SET passes = excluded.passes
