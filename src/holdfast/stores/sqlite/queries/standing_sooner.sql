-- Entries of higher priorities that may still run, in all partitions of the owner.
SELECT count(*) FROM (
  SELECT 1
  FROM holdfast_partition AS p
  CROSS JOIN holdfast_backlog AS b
    ON b.queue = p.queue AND b.partition = p.partition AND b.priority < :priority
  CROSS JOIN holdfast_task AS t ON t.id = b.task AND t.version = b.version AND t.state = 1
  WHERE p.queue = :queue AND (p.partition = :partition OR p.owner = :owner)
  LIMIT :limit
) AS f
