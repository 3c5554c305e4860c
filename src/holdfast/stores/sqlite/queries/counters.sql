SELECT priority, kind, passes FROM holdfast_counter
WHERE queue = :queue AND partition = :partition
