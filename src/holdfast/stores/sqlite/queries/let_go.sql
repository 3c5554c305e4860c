UPDATE holdfast_partition SET owner = NULL
WHERE queue = :queue AND partition = :partition AND owner = :node
