-- The owner's exact read has passed a row at or below the position, which is kept as a mark.  A row
-- at or above the snapshot's xmin is not read exactly before an older transaction has ended.
SELECT
    {schema}.now(), t.weight, p.queue IS NOT NULL, p.owner,
    coalesce((t.arrived::text::bigint, t.id) <= (m.pass, m.seq), false),
    coalesce(t.arrived >= pg_snapshot_xmin(pg_current_snapshot()), false)
FROM (SELECT :id::bigint AS id) AS w
LEFT JOIN LATERAL (SELECT t.* FROM {schema}.task AS t WHERE t.id = w.id LIMIT 1) AS t ON true
LEFT JOIN LATERAL (
    SELECT p.* FROM {schema}.partition AS p
    WHERE p.queue = t.queue AND p.partition = t.partition LIMIT 1
) AS p ON true
LEFT JOIN LATERAL (
    SELECT m.pass, m.seq FROM {schema}.mark AS m
    WHERE m.queue = t.queue AND m.partition = t.partition AND m.priority = -1 AND m.kind = ''
    ORDER BY m.number DESC LIMIT 1
) AS m ON true
