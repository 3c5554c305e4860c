UPDATE holdfast_partition SET owner = :node, epoch = epoch + 1, wish = NULL
WHERE queue = :queue AND partition = :partition AND epoch = :epoch
RETURNING epoch
