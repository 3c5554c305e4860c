-- One row: what a tick of a node needs to know, in one snapshot.
SELECT
    ARRAY(
        SELECT ROW(
            n.id, n.queues, n.kinds, {schema}.is_alive(n.until, n.lease), n.number,
            extract(epoch FROM n.until - {schema}.now())::double precision, n.started_at, n.facts,
            n.asked
        )
        FROM {schema}.node AS n ORDER BY n.id
    ),
    ARRAY(
        SELECT ROW(p.queue, p.partition, p.owner, p.epoch, p.wish)
        FROM {schema}.partition AS p WHERE p.queue = ANY (:queues::text[])
        ORDER BY p.queue, p.partition
    ),
    ARRAY(
        SELECT ROW(
            d.name, d.number, d.holder,
            extract(epoch FROM d.due_at - {schema}.now())::double precision
        )
        FROM {schema}.duty AS d ORDER BY d.name
    ),
    (SELECT r.version FROM {schema}.rule_version AS r)
