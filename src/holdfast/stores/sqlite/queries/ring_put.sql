INSERT INTO holdfast_ring (name, number, writer, body) VALUES (:ring, :number, :writer, :body)
ON CONFLICT (name) DO UPDATE
SET number = excluded.number, writer = excluded.writer, body = excluded.body
