SELECT
    n.id, n.queues, n.kinds, {schema}.is_alive(n.until, n.lease), n.number,
    extract(epoch FROM n.until - {schema}.now())::double precision, n.started_at, n.facts, n.asked
FROM {schema}.node AS n ORDER BY n.id
