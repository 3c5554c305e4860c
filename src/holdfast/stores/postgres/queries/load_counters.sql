SELECT c.partition, c.priority, c.kind, c.passes
FROM {schema}.counter AS c
WHERE c.queue = :queue::text AND c.partition = ANY (:partitions::smallint[])
