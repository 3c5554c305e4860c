DELETE FROM {schema}.share AS s
WHERE s.queue = :queue::text AND s.name = :name::text AND s.key = :key::text
    AND s.node = :node::text
