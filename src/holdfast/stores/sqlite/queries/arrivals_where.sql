-- The partitions in which something stands at or above their cursors: one statement for all, because
-- most doorbells ring for one of them.
SELECT json_extract(c.value, '$[0]')
FROM json_each(:cursors) AS c
WHERE EXISTS (
    SELECT 1 FROM holdfast_task AS t
    WHERE t.queue = :queue AND t.partition = json_extract(c.value, '$[0]') AND t.state = 1
      AND t.arrived >= json_extract(c.value, '$[1]')
)
