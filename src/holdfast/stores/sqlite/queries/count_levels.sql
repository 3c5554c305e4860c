SELECT count(*) FROM (
  SELECT 1
  FROM holdfast_backlog
  WHERE queue = :queue AND partition = :partition AND priority = :priority AND kind = :kind
    AND lane = :lane
    AND (pass, seq) > (:pass, :seq)
  LIMIT :limit
)
