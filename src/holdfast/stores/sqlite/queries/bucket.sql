SELECT tokens, at FROM holdfast_bucket WHERE queue = :queue AND name = :name AND key = :key
