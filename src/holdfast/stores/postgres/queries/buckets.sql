SELECT
    w.name, w.key, b.tokens,
    coalesce(extract(epoch FROM {schema}.now() - b.at), 0)::double precision
FROM unnest(:names::text[], :keys::text[]) AS w (name, key)
LEFT JOIN LATERAL (
    SELECT b.tokens, b.at FROM {schema}.bucket AS b
    WHERE b.queue = :queue::text AND b.name = w.name AND b.key = w.key
) AS b ON true
