SELECT name, key, tokens, at FROM holdfast_bucket WHERE queue = :queue AND key IN ('', :key)
