SELECT n.id, n.queues, n.kinds, {schema}.is_alive(n.until, n.lease)
FROM {schema}.node AS n ORDER BY n.id
