INSERT INTO holdfast_fairness_rule (queue, mode) VALUES (:queue, :mode)
ON CONFLICT (queue) DO UPDATE SET mode = excluded.mode
