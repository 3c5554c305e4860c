-- Waits for grabs under these shares, and stops later ones.
UPDATE {schema}.share AS s SET ended = true
FROM unnest(:nodes::text[]) AS n (id)
WHERE s.node = n.id AND NOT s.ended AND NOT EXISTS (
    SELECT FROM {schema}.node AS l WHERE l.id = n.id AND {schema}.is_alive(l.until, l.lease)
)
