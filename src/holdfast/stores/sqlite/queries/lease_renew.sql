INSERT INTO holdfast_lease (node, queues, kinds, pid, until)
VALUES (:node, :queues, :kinds, :pid, :until)
ON CONFLICT (node) DO UPDATE
SET queues = excluded.queues, kinds = excluded.kinds, pid = excluded.pid, until = excluded.until
