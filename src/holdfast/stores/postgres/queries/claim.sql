-- The update waits for every write that holds the row FOR SHARE: what the old owner wrote is
-- visible after this commit, and what it tries later finds another epoch.
UPDATE {schema}.partition AS p SET owner = :node::text, epoch = p.epoch + 1, wish = NULL
FROM unnest(:partitions::smallint[], :epochs::bigint[]) AS w (partition, epoch)
WHERE p.queue = :queue::text AND p.partition = w.partition AND p.epoch = w.epoch
    AND (
        p.owner IS NULL OR p.owner = :node::text OR NOT EXISTS (
            SELECT FROM {schema}.node AS n
            WHERE n.id = p.owner AND {schema}.is_alive(n.until, n.lease)
        )
    )
RETURNING p.partition, p.epoch
