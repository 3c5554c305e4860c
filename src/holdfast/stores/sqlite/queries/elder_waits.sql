-- A task that its caller delayed was never delivered: it takes its place when it is woken.
SELECT 1 FROM holdfast_task
WHERE queue = :queue AND ordering_key = :ordering_key AND id < :id
  AND (state = 1 OR (state = 0 AND deliveries > 0) OR (state = 4 AND NOT :skip_errors))
LIMIT 1
