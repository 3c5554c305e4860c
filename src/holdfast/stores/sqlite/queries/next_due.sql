SELECT due_at FROM holdfast_task WHERE state = 0 ORDER BY due_at LIMIT 1
