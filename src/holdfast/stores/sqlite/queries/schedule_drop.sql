DELETE FROM holdfast_schedule WHERE name = :name RETURNING name
