UPDATE holdfast_partition SET wish = :node
WHERE queue = :queue AND partition = :partition
