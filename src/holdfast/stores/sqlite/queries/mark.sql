INSERT INTO holdfast_mark (queue, partition, priority, kind, ack_pass, ack_seq, top_pass)
VALUES (:queue, :partition, :priority, :kind, :ack_pass, :ack_seq, :top_pass)
ON CONFLICT (queue, partition, priority, kind) DO UPDATE
SET ack_pass = excluded.ack_pass, ack_seq = excluded.ack_seq, top_pass = excluded.top_pass
