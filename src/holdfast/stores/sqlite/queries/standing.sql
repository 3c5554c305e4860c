SELECT weight, arrived FROM holdfast_task WHERE id = :id
