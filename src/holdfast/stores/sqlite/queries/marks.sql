SELECT priority, kind, ack_pass, ack_seq, top_pass FROM holdfast_mark
WHERE queue = :queue AND partition = :partition
