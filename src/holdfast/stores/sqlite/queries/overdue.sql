SELECT id, version, queue, kind, node, (:now - deadline_at) / 1000000.0
FROM holdfast_task WHERE state = 2 AND deadline_at < :now ORDER BY deadline_at LIMIT :limit
