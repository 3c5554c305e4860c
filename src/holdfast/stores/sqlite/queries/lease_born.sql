INSERT INTO holdfast_birth (one, born_at, grace) VALUES (1, :born_at, :grace)
ON CONFLICT DO NOTHING
