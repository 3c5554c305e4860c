INSERT INTO holdfast_share (queue, name, key, node, held, wanted)
VALUES (:queue, :name, :key, :node, :held, :wanted)
ON CONFLICT (queue, name, key, node) DO UPDATE SET held = excluded.held, wanted = excluded.wanted
RETURNING number
