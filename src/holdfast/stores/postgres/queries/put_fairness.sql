INSERT INTO {schema}.fairness_rule AS f (queue, mode) VALUES (:queue::text, :mode::text)
ON CONFLICT (queue) DO UPDATE SET mode = excluded.mode
