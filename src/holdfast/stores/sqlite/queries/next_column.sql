-- Hops from column to column: a takeover never walks a whole backlog.
SELECT priority, kind, lane FROM holdfast_backlog
WHERE queue = :queue AND partition = :partition 
  AND (priority, kind, lane) > (:priority, :kind, :lane)
ORDER BY priority, kind, lane LIMIT 1
