-- Entries of the column below the level that may still run, in all partitions of the owner.
SELECT count(*), coalesce(sum(f.fairness_key IS :key), 0) FROM (
  SELECT b.fairness_key
  FROM holdfast_partition AS p
  CROSS JOIN holdfast_backlog AS b
    ON b.queue = p.queue AND b.partition = p.partition AND b.priority = :priority
      AND b.kind = :kind AND b.lane = :lane AND (b.pass, b.seq) < (:pass, :seq)
  LEFT JOIN holdfast_mark AS m
    ON :lane = '' AND m.queue = p.queue AND m.partition = p.partition
      AND m.priority = :priority AND m.kind = :kind
  CROSS JOIN holdfast_task AS t ON t.id = b.task AND t.version = b.version AND t.state = 1
  WHERE p.queue = :queue AND (p.partition = :partition OR p.owner = :owner)
    AND (b.pass, b.seq) > (coalesce(m.ack_pass, 0), coalesce(m.ack_seq, 0))
  LIMIT :limit
) AS f
