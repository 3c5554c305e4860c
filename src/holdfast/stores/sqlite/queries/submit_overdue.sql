-- Above the position of its partition only: what is at or below it stands in the backlog.
SELECT t.id, t.deadline_at IS NULL AND t.version > 1
FROM holdfast_partition AS p CROSS JOIN holdfast_task AS t
  ON t.state = 1 AND t.queue = p.queue AND t.partition = p.partition
  AND t.arrived >= p.position_arrived
  AND (t.arrived, t.id) > (p.position_arrived, p.position_id)
WHERE coalesce(t.deadline_at, t.enqueued_at + :span) < :now
ORDER BY t.arrived, t.id LIMIT :limit
