SELECT s.name, s.key, s.node, s.held, s.wanted, s.ended
FROM unnest(:names::text[], :keys::text[]) AS w (name, key)
CROSS JOIN LATERAL (
    SELECT s.* FROM {schema}.share AS s
    WHERE s.queue = :queue::text AND s.name = w.name AND s.key = w.key
) AS s
