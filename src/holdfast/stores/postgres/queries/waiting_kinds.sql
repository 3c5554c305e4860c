-- From one queue to the next by the index, and of each partition the oldest.
WITH RECURSIVE found (queue) AS (
    SELECT (SELECT t.queue FROM {schema}.task AS t WHERE t.state = 1 ORDER BY t.queue LIMIT 1)
    UNION ALL
    SELECT (
        SELECT t.queue FROM {schema}.task AS t
        WHERE t.state = 1 AND t.queue > f.queue ORDER BY t.queue LIMIT 1
    )
    FROM found AS f WHERE f.queue IS NOT NULL
)
SELECT DISTINCT f.queue, t.kind
FROM found AS f
CROSS JOIN generate_series(0, :partitions::integer - 1) AS p (partition)
CROSS JOIN LATERAL (
    SELECT t.kind FROM {schema}.task AS t
    WHERE t.state = 1 AND t.queue = f.queue AND t.partition = p.partition::smallint
    ORDER BY t.arrived, t.id LIMIT :limit::integer
) AS t
WHERE f.queue IS NOT NULL
ORDER BY f.queue, t.kind
