SELECT pass, seq FROM holdfast_backlog
WHERE queue = :queue AND partition = :partition AND priority = :priority AND kind = :kind
ORDER BY pass DESC, seq DESC LIMIT 1
