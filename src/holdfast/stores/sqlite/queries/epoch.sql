SELECT epoch FROM holdfast_partition WHERE queue = :queue AND partition = :partition
