-- By id: the index of what runs would cross all that ever ran here, while vacuum cannot run.
SELECT h.id
FROM unnest(:ids::bigint[], :versions::integer[]) AS h (id, version)
WHERE NOT EXISTS (
    SELECT FROM {schema}.task AS t
    WHERE t.id = h.id AND t.version = h.version AND t.state + 0 = 2 AND t.node = :node::text
    OFFSET 0
)
