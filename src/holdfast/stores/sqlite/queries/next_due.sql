-- The bound makes it a search: a scan would say that it walks the table.
SELECT due_at FROM holdfast_task WHERE state = 0 AND due_at >= 0 ORDER BY due_at LIMIT 1
