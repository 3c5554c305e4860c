-- One row a cursor comes back at least, so that the horizon is always of this very snapshot.
-- Ordered by the columns themselves, or the index would not serve the order.
SELECT
    (SELECT pg_snapshot_xmin(pg_current_snapshot())),
    t.id, t.version, c.partition, t.kind, t.priority, t.fairness_key, t.weight,
    t.ordering_key, t.arrived
FROM unnest(:partitions::smallint[], :arriveds::xid8[], :ids::bigint[])
    AS c (partition, arrived, id)
LEFT JOIN LATERAL (
    SELECT
        t.id, t.version, t.kind, t.priority, t.fairness_key, t.weight, t.ordering_key, t.arrived
    FROM {schema}.task AS t
    WHERE t.state = 1 AND t.queue = :queue::text AND t.partition = c.partition
        AND (t.arrived, t.id) > (c.arrived, c.id)
        AND t.arrived < CASE
            WHEN :exact::boolean THEN pg_snapshot_xmin(pg_current_snapshot())
            ELSE '18446744073709551615'::xid8
        END
    ORDER BY t.arrived, t.id
    LIMIT :limit::integer
) AS t ON true
