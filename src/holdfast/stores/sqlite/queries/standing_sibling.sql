SELECT id, state FROM holdfast_task
WHERE queue = :queue AND ordering_key = :ordering_key AND state = 2
LIMIT 1
