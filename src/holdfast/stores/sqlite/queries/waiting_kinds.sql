-- From one queue to the next by the index, and of each partition the oldest.
WITH RECURSIVE found (queue) AS (
    SELECT (SELECT t.queue FROM holdfast_task AS t WHERE t.state = 1 ORDER BY t.queue LIMIT 1)
    UNION ALL
    SELECT (
        SELECT t.queue FROM holdfast_task AS t
        WHERE t.state = 1 AND t.queue > f.queue ORDER BY t.queue LIMIT 1
    )
    FROM found AS f WHERE f.queue IS NOT NULL
),
part (number) AS (
    SELECT 0 UNION ALL SELECT number + 1 FROM part WHERE number + 1 < :partitions
)
SELECT DISTINCT f.queue, t.kind
FROM found AS f CROSS JOIN part AS p
JOIN holdfast_task AS t ON t.id IN (
    SELECT s.id FROM holdfast_task AS s
    WHERE s.state = 1 AND s.queue = f.queue AND s.partition = p.number
    ORDER BY s.arrived, s.id LIMIT :limit
)
WHERE f.queue IS NOT NULL
ORDER BY f.queue, t.kind
