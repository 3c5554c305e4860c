-- From one queue to the next by the index, not over all their tasks.
WITH RECURSIVE found (queue) AS (
    SELECT (SELECT t.queue FROM {schema}.task AS t WHERE t.state = 1 ORDER BY t.queue LIMIT 1)
    UNION ALL
    SELECT (
        SELECT t.queue FROM {schema}.task AS t
        WHERE t.state = 1 AND t.queue > f.queue ORDER BY t.queue LIMIT 1
    )
    FROM found AS f WHERE f.queue IS NOT NULL
)
SELECT f.queue FROM found AS f
WHERE f.queue IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM {schema}.partition AS p WHERE p.queue = f.queue
)
