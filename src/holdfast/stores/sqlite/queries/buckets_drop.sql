DELETE FROM holdfast_bucket WHERE queue = :queue AND name = :name
