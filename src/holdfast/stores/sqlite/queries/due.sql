SELECT id FROM holdfast_task WHERE state = 0 AND due_at <= :now ORDER BY due_at, id LIMIT :limit
