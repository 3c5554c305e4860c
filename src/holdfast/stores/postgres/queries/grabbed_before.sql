-- What this node holds at the version that the grab of these triggers would give: grabbed by a call
-- whose answer was lost.  Whoever owns the partition now, the attempt is this node's.
SELECT
    t.id, t.version, t.kind, t.payload, t.attempts + 1, t.deliveries, t.priority, t.queue,
    t.partition, t.fairness_key, t.weight, t.ordering_key, t.metadata, t.enqueued_at,
    t.losses
FROM unnest(:ids::bigint[], :versions::integer[]) AS w (id, version)
CROSS JOIN LATERAL (
    SELECT * FROM {schema}.task AS t
    WHERE t.id = w.id AND t.version = w.version + 1 AND t.state + 0 = 2 AND t.node = :node::text
    LIMIT 1
) AS t
