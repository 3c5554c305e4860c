-- A lane has no mark: what is decided is deleted.
SELECT f.pass, f.seq FROM (
  SELECT b.pass, b.seq, b.task, b.version
  FROM holdfast_backlog AS b
  WHERE b.queue = :queue AND b.partition = :partition AND b.priority = :priority
    AND b.kind = :kind AND b.lane = :lane
    AND (b.pass, b.seq) > (
      SELECT coalesce(max(m.ack_pass), 0), coalesce(max(m.ack_seq), 0) FROM holdfast_mark AS m
      WHERE :lane = '' AND m.queue = :queue AND m.partition = :partition
        AND m.priority = :priority AND m.kind = :kind
    )
  ORDER BY b.pass, b.seq LIMIT :looked_at
) AS f
WHERE f.task = :id AND f.version = :version LIMIT 1
