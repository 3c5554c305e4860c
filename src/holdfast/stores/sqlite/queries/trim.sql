DELETE FROM holdfast_backlog
WHERE queue = :queue AND partition = :partition AND priority = :priority AND kind = :kind
  AND lane = :lane
  AND (pass, seq) > (:from_pass, :from_seq) AND (pass, seq) <= (:to_pass, :to_seq)
