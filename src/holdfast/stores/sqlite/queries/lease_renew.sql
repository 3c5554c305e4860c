INSERT INTO holdfast_lease (node, queues, kinds, pid, until, facts, started_at, number)
VALUES (:node, :queues, :kinds, :pid, :until, :facts, :now,
  (SELECT coalesce(max(number), 0) + 1 FROM holdfast_lease))
ON CONFLICT (node) DO UPDATE
SET queues = excluded.queues, kinds = excluded.kinds, pid = excluded.pid, until = excluded.until,
  facts = excluded.facts
