INSERT INTO holdfast_weight_rule (queue, key, weight) VALUES (:queue, :key, :weight)
ON CONFLICT (queue, key) DO UPDATE SET weight = excluded.weight
