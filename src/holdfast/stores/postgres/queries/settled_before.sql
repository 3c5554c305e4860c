-- Outcomes that an earlier call recorded, whose reply was lost.
SELECT o.id
FROM unnest(:ids::bigint[], :versions::integer[], :states::smallint[], :keeps::boolean[])
    AS o (id, version, state, keep)
LEFT JOIN {schema}.task AS t ON t.id = o.id
LEFT JOIN {schema}.archive AS a ON a.id = o.id
WHERE (t.version = o.version + 1 AND t.state + 0 = o.state AND t.node = :node::text)
    OR (a.version = o.version + 1 AND a.state = o.state AND a.node = :node::text)
    OR (t.id IS NULL AND a.id IS NULL AND NOT o.keep)
