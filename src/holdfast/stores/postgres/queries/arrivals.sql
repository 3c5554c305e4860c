-- The first row is the snapshot of this very statement, in which all the others were read.
-- Ordered by the columns themselves, or the index would not serve the order.
SELECT
    NULL::bigint, NULL::integer, NULL::smallint, NULL::text, NULL::smallint, NULL::text, NULL::real,
    NULL::text, NULL::xid8, pg_current_snapshot()::text
UNION ALL
SELECT
    t.id, t.version, c.partition, t.kind, t.priority, t.fairness_key, t.weight,
    t.ordering_key, t.arrived, NULL::text
FROM unnest(:partitions::smallint[], :arriveds::xid8[], :ids::bigint[], :untils::xid8[])
    AS c (partition, arrived, id, until)
CROSS JOIN LATERAL (
    SELECT
        t.id, t.version, t.kind, t.priority, t.fairness_key, t.weight, t.ordering_key, t.arrived
    FROM {schema}.task AS t
    WHERE t.state = 1 AND t.queue = :queue::text AND t.partition = c.partition
        AND (t.arrived, t.id) > (c.arrived, c.id)
        AND t.arrived < CASE
            WHEN :exact::boolean THEN pg_snapshot_xmin(pg_current_snapshot())
            ELSE c.until
        END
    ORDER BY t.arrived, t.id
    LIMIT :limit::integer
) AS t
