SELECT
    m.now, s.name, s.version, s.timing, s.kind, s.queue, s.priority, s.weight, s.partition,
    s.fairness_key, s.ordering_key, s.metadata, s.payload, s.source, s.paused,
    s.next_at, s.last_at, s.missed
FROM (SELECT {schema}.now() AS now) AS m
LEFT JOIN {schema}.schedule AS s
    ON cardinality(:names::text[]) = 0 OR s.name = ANY (:names::text[])
ORDER BY s.name
