-- As grab.sql, for tasks with an ordering key: also locks the partitions' rows at the owner's
-- epochs (naming an epoch without the lock is no fence), and takes a task only when no sibling
-- runs and no elder stands before it.  An elder that its caller delayed (no delivery yet) takes
-- its place when it is woken, and blocks nobody until then.
WITH fence AS MATERIALIZED (
    SELECT p.queue, p.partition
    FROM unnest(:fence_queues::text[], :fence_partitions::smallint[], :fence_epochs::bigint[])
        AS f (queue, partition, epoch)
    JOIN {schema}.partition AS p
        ON p.queue = f.queue AND p.partition = f.partition AND p.epoch = f.epoch
    FOR SHARE OF p
),
chosen AS MATERIALIZED (
    SELECT t.id, w.version, w.deadline_s
    FROM unnest(:ids::bigint[], :versions::integer[], :deadlines_s::double precision[])
        AS w (id, version, deadline_s)
    JOIN {schema}.task AS t ON t.id = w.id
    WHERE EXISTS (
        SELECT FROM fence AS f WHERE f.queue = t.queue AND f.partition = t.partition
    ) AND (
        (:repeat::boolean AND t.version = w.version + 1 AND t.state + 0 = 2 AND t.node = :node::text)
        OR (
            t.version = w.version AND t.state + 0 = 1
            AND NOT EXISTS (
                SELECT FROM {schema}.task AS s
                WHERE s.queue = t.queue AND s.ordering_key = t.ordering_key
                    AND s.ordering_key IS NOT NULL AND s.state = 2
            )
            AND NOT EXISTS (
                SELECT FROM {schema}.task AS s
                WHERE s.queue = t.queue AND s.ordering_key = t.ordering_key
                    AND s.ordering_key IS NOT NULL AND s.id < t.id
                    AND (
                        s.state + 0 = 1 OR (s.state + 0 = 0 AND s.deliveries > 0)
                        OR (s.state + 0 = 4 AND NOT t.kind = ANY (:skip_errors_of::text[]))
                    )
            )
        )
    )
    FOR NO KEY UPDATE OF t SKIP LOCKED
)
UPDATE {schema}.task AS t SET
    state = 2,
    version = c.version + 1,
    deliveries = t.deliveries + CASE t.state WHEN 1 THEN 1 ELSE 0 END,
    node = :node::text,
    deadline_at = m.now + c.deadline_s * interval '1 second'
FROM chosen AS c CROSS JOIN (SELECT {schema}.now() AS now) AS m
WHERE t.id = c.id
RETURNING
    t.id, t.version, t.kind, t.payload, t.attempts + 1, t.deliveries, t.priority, t.queue,
    t.partition, t.fairness_key, t.ordering_key, t.metadata, t.enqueued_at
