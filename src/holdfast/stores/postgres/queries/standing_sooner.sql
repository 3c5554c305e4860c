-- Entries of higher priorities that may still run, in all partitions of the owner.
SELECT count(*) FROM (
    SELECT 1
    FROM {schema}.partition AS p
    CROSS JOIN LATERAL (
        SELECT b.task, b.version FROM {schema}.backlog AS b
        WHERE b.queue = p.queue AND b.partition = p.partition
            AND b.priority < :priority::smallint
        LIMIT :looked_at::integer
    ) AS b
    CROSS JOIN LATERAL (
        SELECT FROM {schema}.task AS t
        WHERE t.id = b.task AND t.version = b.version AND t.state + 0 = 1 LIMIT 1
    ) AS t
    WHERE p.queue = :queue::text
        AND (p.partition = :partition::smallint OR p.owner = :owner::text)
    LIMIT :limit::integer
) AS f
