INSERT INTO {schema}.mark (queue, partition, priority, kind, pass, seq, top_pass)
SELECT p.queue, p.partition, -1, '', 0, 0, 0
FROM {schema}.partition AS p
CROSS JOIN LATERAL (
    SELECT m.pass FROM {schema}.mark AS m
    WHERE m.queue = p.queue AND m.partition = p.partition AND m.priority = -1 AND m.kind = ''
    ORDER BY m.number DESC LIMIT 1
) AS m
WHERE m.pass > pg_snapshot_xmax(pg_current_snapshot())::text::bigint
