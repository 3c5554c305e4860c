-- Entries of the column below the level that may still run, in all partitions of the owner.
SELECT count(*), count(*) FILTER (WHERE f.fairness_key IS NOT DISTINCT FROM :key::text)
FROM (
    SELECT b.fairness_key
    FROM {schema}.partition AS p
    LEFT JOIN LATERAL (
        SELECT m.pass, m.seq FROM {schema}.mark AS m
        WHERE :lane::text = '' AND m.queue = p.queue AND m.partition = p.partition
            AND m.priority = :priority::smallint AND m.kind = :kind::text
        ORDER BY m.number DESC LIMIT 1
    ) AS m ON true
    CROSS JOIN LATERAL (
        SELECT b.task, b.version, b.fairness_key FROM {schema}.backlog AS b
        WHERE b.queue = p.queue AND b.partition = p.partition
            AND b.priority = :priority::smallint AND b.kind = :kind::text AND b.lane = :lane::text
            AND (b.pass, b.seq) > (coalesce(m.pass, 0), coalesce(m.seq, 0))
            AND (b.pass, b.seq) < (:pass::bigint, :seq::bigint)
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
