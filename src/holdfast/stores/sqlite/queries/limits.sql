SELECT name, queue, concurrency, rate, kind, key, burst, local FROM holdfast_limit_rule
WHERE queue = :queue ORDER BY name
