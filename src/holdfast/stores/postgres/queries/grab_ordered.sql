-- As grab.sql, for tasks with an ordering key: also locks the partitions' rows at the owner's
-- epochs (naming an epoch without the lock is no fence), and takes a task only when no sibling
-- runs and no elder stands before it.  An elder that its caller delayed (no delivery yet) takes
-- its place when it is woken, and blocks nobody until then.  OFFSET 0: else the planner may
-- gather all keys that are busy or wait, for every grab.
WITH fence AS MATERIALIZED (
    SELECT f.queue, f.partition
    FROM unnest(:fence_queues::text[], :fence_partitions::smallint[], :fence_epochs::bigint[])
        AS f (queue, partition, epoch)
    CROSS JOIN LATERAL (
        SELECT FROM {schema}.partition AS p
        WHERE p.queue = f.queue AND p.partition = f.partition AND p.epoch = f.epoch
        FOR SHARE
    ) AS p
),
chosen AS MATERIALIZED (
    SELECT t.place, w.version
    FROM fence AS f
    JOIN (
        SELECT w.id, coalesce(w.version, :version::integer) AS version, w.queue, w.partition
        FROM unnest(:ids::bigint[], :versions::integer[], :queues::text[], :partitions::smallint[])
            AS w (id, version, queue, partition)
    ) AS w ON w.queue = f.queue AND w.partition = f.partition
    CROSS JOIN LATERAL (
        SELECT t.ctid AS place FROM {schema}.task AS t
        WHERE t.id = w.id AND t.queue = w.queue AND t.partition = w.partition
            AND t.version = w.version AND t.state + 0 = 1
            AND NOT EXISTS (
                SELECT FROM {schema}.task AS s
                WHERE s.queue = t.queue AND s.ordering_key = t.ordering_key
                    AND s.ordering_key IS NOT NULL AND s.state = 2
                OFFSET 0
            )
            AND NOT EXISTS (
                SELECT FROM {schema}.task AS s
                WHERE s.queue = t.queue AND s.ordering_key = t.ordering_key
                    AND s.ordering_key IS NOT NULL AND s.id < t.id
                    AND (
                        s.state + 0 = 1 OR (s.state + 0 = 0 AND s.deliveries > 0)
                        OR (s.state + 0 = 4 AND NOT t.kind = ANY (:skip_errors_of::text[]))
                    )
                OFFSET 0
            )
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS t
)
UPDATE {schema}.task AS t SET
    state = 2,
    version = c.version + 1,
    deliveries = t.deliveries + 1,
    node = :node::text,
    deadline_at = (SELECT {schema}.now()) + interval '1 second'
        * (:deadlines_s::double precision[])[array_position(:kinds::text[], t.kind)]
FROM chosen AS c
WHERE t.ctid = c.place
RETURNING
    t.id, t.version, t.kind, t.payload, t.attempts + 1, t.deliveries, t.priority, t.queue,
    t.partition, t.fairness_key, t.weight, t.ordering_key, t.metadata, t.enqueued_at,
    t.losses
