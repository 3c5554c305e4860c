SELECT count(*) FROM {schema}.task AS t
WHERE t.state = 2 AND t.node = :node::text AND t.queue = :queue::text
    AND (:kind::text IS NULL OR t.kind = :kind::text)
    AND (:key::text IS NULL OR t.fairness_key = :key::text)
