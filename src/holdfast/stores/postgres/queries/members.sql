SELECT n.id, n.queues, n.kinds, n.until > {schema}.now() FROM {schema}.node AS n ORDER BY n.id
