UPDATE {schema}.partition AS p SET wish = :node::text
WHERE p.queue = :queue::text AND p.partition = ANY (:partitions::smallint[])
    AND p.wish IS DISTINCT FROM :node::text
