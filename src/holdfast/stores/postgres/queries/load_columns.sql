-- From the highest level of each column straight to the highest of the next: one index look-up a
-- column, however long it is.
SELECT w.partition, c.priority, c.kind, c.lane, c.pass, c.seq, c.fairness_key
FROM unnest(:partitions::smallint[]) AS w (partition)
CROSS JOIN LATERAL (
    WITH RECURSIVE hop AS (
        (
            SELECT b.priority, b.kind, b.lane, b.pass, b.seq, b.fairness_key
            FROM {schema}.backlog AS b
            WHERE b.queue = :queue::text AND b.partition = w.partition
            ORDER BY b.priority DESC, b.kind DESC, b.lane DESC, b.pass DESC, b.seq DESC
            LIMIT 1
        )
        UNION ALL
        SELECT n.*
        FROM hop AS h CROSS JOIN LATERAL (
            SELECT b.priority, b.kind, b.lane, b.pass, b.seq, b.fairness_key
            FROM {schema}.backlog AS b
            WHERE b.queue = :queue::text AND b.partition = w.partition
                AND (b.priority, b.kind, b.lane) < (h.priority, h.kind, h.lane)
            ORDER BY b.priority DESC, b.kind DESC, b.lane DESC, b.pass DESC, b.seq DESC
            LIMIT 1
        ) AS n
    )
    SELECT * FROM hop
) AS c
