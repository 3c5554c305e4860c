-- SUBMITTED tasks go from one queue to the next by their index.  The others have no index by
-- queue: they are read from their own indexes, up to a maximum over all queues.
WITH RECURSIVE submitted (queue) AS (
    SELECT (SELECT t.queue FROM holdfast_task AS t WHERE t.state = 1 ORDER BY t.queue LIMIT 1)
    UNION ALL
    SELECT (
        SELECT t.queue FROM holdfast_task AS t
        WHERE t.state = 1 AND t.queue > f.queue ORDER BY t.queue LIMIT 1
    )
    FROM submitted AS f WHERE f.queue IS NOT NULL
),
numbers (partition) AS (
    SELECT 0 UNION ALL SELECT n.partition + 1 FROM numbers AS n WHERE n.partition + 1 < :partitions
),
waiting (queue, many) AS MATERIALIZED (
    SELECT w.queue, count(*) FROM (
        SELECT t.queue FROM holdfast_task AS t INDEXED BY holdfast_task_waiting
        WHERE t.state = 0 LIMIT :scan_max
    ) AS w
    GROUP BY w.queue
),
running (queue, many, stuck) AS MATERIALIZED (
    SELECT r.queue, count(*), count(*) FILTER (WHERE r.deadline_at < :now) FROM (
        SELECT t.queue, t.deadline_at FROM holdfast_task AS t INDEXED BY holdfast_task_processing
        WHERE t.state = 2 LIMIT :scan_max
    ) AS r
    GROUP BY r.queue
),
error (queue, many) AS MATERIALIZED (
    SELECT e.queue, count(*) FROM (
        SELECT t.queue FROM holdfast_task AS t INDEXED BY holdfast_task_error
        WHERE t.state = 4 LIMIT :scan_max
    ) AS e
    GROUP BY e.queue
),
known (queue) AS (
    SELECT s.queue FROM submitted AS s WHERE s.queue IS NOT NULL
    UNION SELECT queue FROM waiting
    UNION SELECT queue FROM running
    UNION SELECT queue FROM error
    UNION SELECT p.queue FROM holdfast_partition AS p
)
SELECT
    k.queue,
    min(coalesce((SELECT w.many FROM waiting AS w WHERE w.queue = k.queue), 0), :count_max),
    (
        SELECT count(*) FROM (
            SELECT 1 FROM holdfast_task AS t INDEXED BY holdfast_task_submitted
            WHERE t.state = 1 AND t.queue = k.queue LIMIT :count_max
        )
    ),
    min(coalesce((SELECT r.many FROM running AS r WHERE r.queue = k.queue), 0), :count_max),
    min(coalesce((SELECT e.many FROM error AS e WHERE e.queue = k.queue), 0), :count_max),
    (
        SELECT t.enqueued_at FROM holdfast_task AS t
        WHERE t.id IN (
            SELECT (
                SELECT f.id FROM holdfast_task AS f INDEXED BY holdfast_task_submitted
                WHERE f.state = 1 AND f.queue = k.queue AND f.partition = n.partition
                ORDER BY f.arrived, f.id LIMIT 1
            )
            FROM numbers AS n
        )
        ORDER BY t.arrived, t.id LIMIT 1
    ),
    min(coalesce((SELECT r.stuck FROM running AS r WHERE r.queue = k.queue), 0), :count_max)
FROM known AS k
ORDER BY k.queue
