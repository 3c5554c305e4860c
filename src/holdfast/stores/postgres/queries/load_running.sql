SELECT t.id, t.version, t.kind, t.node, t.partition, t.ordering_key, t.fairness_key
FROM {schema}.task AS t
WHERE t.state = 2 AND t.queue = :queue::text AND t.partition = ANY (:partitions::smallint[])
