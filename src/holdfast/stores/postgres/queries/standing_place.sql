-- In the lane of its key or, after that, in the line of everybody; not looked for beyond `limit`.
-- A lane has no mark: what is decided is deleted.
SELECT l.lane, b.pass, b.seq
FROM unnest(:lanes::text[]) WITH ORDINALITY AS l (lane, number)
LEFT JOIN LATERAL (
    SELECT m.pass, m.seq FROM {schema}.mark AS m
    WHERE l.lane = '' AND m.queue = :queue::text AND m.partition = :partition::smallint
        AND m.priority = :priority::smallint AND m.kind = :kind::text
    ORDER BY m.number DESC LIMIT 1
) AS m ON true
CROSS JOIN LATERAL (
    SELECT f.pass, f.seq FROM (
        SELECT b.pass, b.seq, b.task, b.version FROM {schema}.backlog AS b
        WHERE b.queue = :queue::text AND b.partition = :partition::smallint
            AND b.priority = :priority::smallint AND b.kind = :kind::text AND b.lane = l.lane
            AND (b.pass, b.seq) > (coalesce(m.pass, 0), coalesce(m.seq, 0))
        ORDER BY b.pass, b.seq LIMIT :limit::integer
    ) AS f
    WHERE f.task = :id::bigint AND f.version = :version::integer LIMIT 1
) AS b
ORDER BY l.number LIMIT 1
