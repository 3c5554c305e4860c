UPDATE {schema}.partition AS p SET owner = NULL
WHERE p.queue = :queue::text AND p.partition = ANY (:partitions::smallint[])
    AND p.owner = :node::text
