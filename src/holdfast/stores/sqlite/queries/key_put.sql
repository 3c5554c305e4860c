INSERT INTO holdfast_key (scope, name, task, until) VALUES (:scope, :name, :task, :until)
ON CONFLICT (scope, name) DO UPDATE SET task = excluded.task, until = excluded.until
