-- Outcomes that an earlier call recorded, whose reply was lost.
SELECT o.id
FROM unnest(:ids::bigint[], :versions::integer[], :states::smallint[], :keeps::boolean[])
    AS o (id, version, state, keep)
LEFT JOIN LATERAL (
    SELECT t.id, t.version, t.state, t.node FROM {schema}.task AS t WHERE t.id = o.id LIMIT 1
) AS t ON true
LEFT JOIN LATERAL (
    SELECT a.id, a.version, a.state, a.node FROM {schema}.archive AS a WHERE a.id = o.id LIMIT 1
) AS a ON true
WHERE (t.version = o.version + 1 AND t.state = o.state AND t.node = :node::text)
    OR (a.version = o.version + 1 AND a.state = o.state AND a.node = :node::text)
    OR (t.id IS NULL AND a.id IS NULL AND NOT o.keep)
