SELECT p.partition, p.owner, p.epoch, p.wish
FROM {schema}.partition AS p WHERE p.queue = :queue::text ORDER BY p.partition
