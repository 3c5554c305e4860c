-- From one queue to the next by the indexes, and no further into each than the maximum.  What is
-- PROCESSING has no index by queue: there is never more of it than nodes have slots.  What is
-- WAITING stands in the order of time, with its queue in the index: the first ones of all queues
-- together are counted.
WITH RECURSIVE submitted (queue) AS (
    SELECT (SELECT t.queue FROM {schema}.task AS t WHERE t.state = 1 ORDER BY t.queue LIMIT 1)
    UNION ALL
    SELECT (
        SELECT t.queue FROM {schema}.task AS t
        WHERE t.state = 1 AND t.queue > f.queue ORDER BY t.queue LIMIT 1
    )
    FROM submitted AS f WHERE f.queue IS NOT NULL
),
waiting (queue, many) AS MATERIALIZED (
    SELECT w.queue, count(*)
    FROM (
        SELECT t.queue FROM {schema}.task AS t WHERE t.state = 0
        ORDER BY t.due_at, t.id LIMIT :waiting_max::integer
    ) AS w
    GROUP BY w.queue
),
error (queue) AS (
    SELECT (SELECT t.queue FROM {schema}.task AS t WHERE t.state = 4 ORDER BY t.queue LIMIT 1)
    UNION ALL
    SELECT (
        SELECT t.queue FROM {schema}.task AS t
        WHERE t.state = 4 AND t.queue > f.queue ORDER BY t.queue LIMIT 1
    )
    FROM error AS f WHERE f.queue IS NOT NULL
),
running (queue, many, stuck) AS MATERIALIZED (
    SELECT r.queue, count(*), count(*) FILTER (WHERE r.deadline_at < {schema}.now())
    FROM (
        SELECT t.queue, t.deadline_at FROM {schema}.task AS t
        WHERE t.state = 2 AND t.node >= '' LIMIT :processing_max::integer
    ) AS r
    GROUP BY r.queue
),
known (queue) AS (
    SELECT s.queue FROM submitted AS s WHERE s.queue IS NOT NULL
    UNION SELECT w.queue FROM waiting AS w
    UNION SELECT e.queue FROM error AS e WHERE e.queue IS NOT NULL
    UNION SELECT r.queue FROM running AS r
    UNION SELECT p.queue FROM {schema}.partition AS p WHERE p.partition = 0
)
SELECT
    k.queue,
    least(coalesce(w.many, 0), :count_max::integer),
    (
        SELECT count(*) FROM (
            SELECT 1 FROM {schema}.task AS t WHERE t.state = 1 AND t.queue = k.queue
            LIMIT :count_max::integer
        ) AS s
    ),
    least(coalesce(r.many, 0), :count_max::integer),
    (
        SELECT count(*) FROM (
            SELECT 1 FROM {schema}.task AS t WHERE t.state = 4 AND t.queue = k.queue
            LIMIT :count_max::integer
        ) AS e
    ),
    coalesce((
        SELECT greatest(0, extract(epoch FROM {schema}.now() - o.enqueued_at))::double precision
        FROM generate_series(0, :partitions::integer - 1) AS n (partition)
        CROSS JOIN LATERAL (
            SELECT t.enqueued_at, t.arrived, t.id FROM {schema}.task AS t
            WHERE t.state = 1 AND t.queue = k.queue AND t.partition = n.partition
            ORDER BY t.arrived, t.id LIMIT 1
        ) AS o
        ORDER BY o.arrived, o.id LIMIT 1
    ), 0),
    least(coalesce(r.stuck, 0), :count_max::integer)
FROM known AS k
LEFT JOIN waiting AS w ON w.queue = k.queue
LEFT JOIN running AS r ON r.queue = k.queue
ORDER BY k.queue
