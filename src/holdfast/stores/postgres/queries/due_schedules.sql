-- One row at least, for the time and for the next one that is not due.
WITH moment AS MATERIALIZED (SELECT {schema}.now() AS now)
SELECT
    m.now,
    (SELECT min(l.next_at) FROM {schema}.schedule AS l WHERE NOT l.paused AND l.next_at > m.now),
    s.name, s.version, s.timing, s.kind, s.queue, s.priority, s.weight, s.partition,
    s.fairness_key, s.ordering_key, s.metadata, s.payload, s.source, s.paused,
    s.next_at, s.last_at, s.missed
FROM moment AS m
LEFT JOIN LATERAL (
    SELECT d.* FROM {schema}.schedule AS d
    WHERE NOT d.paused AND d.next_at <= m.now
    ORDER BY d.next_at, d.name
    LIMIT :limit::integer
) AS s ON true
ORDER BY s.next_at, s.name
