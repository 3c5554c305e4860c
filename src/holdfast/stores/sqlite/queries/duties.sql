SELECT name, number, holder, due_at FROM holdfast_duty ORDER BY name
