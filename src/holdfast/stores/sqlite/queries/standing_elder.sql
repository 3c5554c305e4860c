-- The oldest of those for which elder_waits.sql looks.
SELECT id, state FROM holdfast_task
WHERE queue = :queue AND ordering_key = :ordering_key AND id < :id
  AND (state IN (1, 4) OR (state = 0 AND deliveries > 0))
ORDER BY id LIMIT 1
