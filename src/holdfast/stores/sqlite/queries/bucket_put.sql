INSERT INTO holdfast_bucket (queue, name, key, tokens, at)
VALUES (:queue, :name, :key, :tokens, :at)
ON CONFLICT (queue, name, key) DO UPDATE SET tokens = excluded.tokens, at = excluded.at
