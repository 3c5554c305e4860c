SELECT pass, seq, task, version, fairness_key, weight, ordering_key, arrived
FROM holdfast_backlog
WHERE queue = :queue AND partition = :partition AND priority = :priority AND kind = :kind
  AND lane = :lane
  AND (pass, seq) > (:pass, :seq)
ORDER BY pass, seq LIMIT :limit
