-- Hops from column to column: a takeover never walks a whole backlog.
SELECT priority, kind FROM holdfast_backlog
WHERE queue = :queue AND partition = :partition AND (priority, kind) > (:priority, :kind)
ORDER BY priority, kind LIMIT 1
