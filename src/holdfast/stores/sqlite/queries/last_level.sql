SELECT pass, seq, fairness_key FROM holdfast_backlog
WHERE queue = :queue AND partition = :partition AND priority = :priority AND kind = :kind
  AND lane = :lane
ORDER BY pass DESC, seq DESC LIMIT 1
