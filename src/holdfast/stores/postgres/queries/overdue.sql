-- PROCESSING rows are no more than all slots of all nodes: each of them is looked at.
SELECT
    t.id, t.version, t.queue, t.kind, t.node,
    extract(epoch FROM {schema}.now() - t.deadline_at)::double precision
FROM {schema}.task AS t
WHERE t.state = 2 AND t.deadline_at < {schema}.now()
ORDER BY t.deadline_at LIMIT :limit::integer
