-- From the highest level of each column straight to the highest of the next: one index look-up a
-- column, however long it is.
SELECT w.partition, c.priority, c.kind, c.pass, c.seq
FROM unnest(:partitions::smallint[]) AS w (partition)
CROSS JOIN LATERAL (
    WITH RECURSIVE hop AS (
        (
            SELECT b.priority, b.kind, b.pass, b.seq FROM {schema}.backlog AS b
            WHERE b.queue = :queue::text AND b.partition = w.partition
            ORDER BY b.priority DESC, b.kind DESC, b.pass DESC, b.seq DESC LIMIT 1
        )
        UNION ALL
        SELECT n.priority, n.kind, n.pass, n.seq
        FROM hop AS h CROSS JOIN LATERAL (
            SELECT b.priority, b.kind, b.pass, b.seq FROM {schema}.backlog AS b
            WHERE b.queue = :queue::text AND b.partition = w.partition
                AND (b.priority, b.kind) < (h.priority, h.kind)
            ORDER BY b.priority DESC, b.kind DESC, b.pass DESC, b.seq DESC LIMIT 1
        ) AS n
    )
    SELECT * FROM hop
) AS c
