-- A dump restored on another server holds transaction numbers from the future, which would never
-- arrive.  What a live server wrote is always below its own xmax.  Hops from the highest number
-- of each partition to the next partition, so that the usual case reads a row a partition.
WITH RECURSIVE hop AS (
    (
        SELECT t.queue, t.partition, t.arrived FROM {schema}.task AS t
        WHERE t.state = 1
        ORDER BY t.queue DESC, t.partition DESC, t.arrived DESC LIMIT 1
    )
    UNION ALL
    SELECT n.queue, n.partition, n.arrived
    FROM hop AS h CROSS JOIN LATERAL (
        SELECT t.queue, t.partition, t.arrived FROM {schema}.task AS t
        WHERE t.state = 1 AND (t.queue, t.partition) < (h.queue, h.partition)
        ORDER BY t.queue DESC, t.partition DESC, t.arrived DESC LIMIT 1
    ) AS n
)
UPDATE {schema}.task AS t SET arrived = pg_current_xact_id()
FROM hop AS h
WHERE h.arrived >= pg_snapshot_xmax(pg_current_snapshot())
    AND t.state = 1 AND t.queue = h.queue AND t.partition = h.partition
    AND t.arrived >= pg_snapshot_xmax(pg_current_snapshot())
