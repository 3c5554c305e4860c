INSERT INTO holdfast_duty (name, number, holder, due_at) VALUES (:name, 1, :node, :due_at)
ON CONFLICT (name) DO NOTHING RETURNING name
