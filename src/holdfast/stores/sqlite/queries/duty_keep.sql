UPDATE holdfast_duty SET number = number + 1, holder = :node, due_at = :due_at
WHERE name = :name AND number = :number RETURNING name
