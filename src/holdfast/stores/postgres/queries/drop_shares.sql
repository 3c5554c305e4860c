-- Those of nodes that run nothing any more.
DELETE FROM {schema}.share AS s
WHERE s.node = ANY (:nodes::text[]) AND NOT EXISTS (
    SELECT FROM {schema}.task AS t WHERE t.state = 2 AND t.node = s.node
) AND NOT EXISTS (
    SELECT FROM {schema}.node AS l WHERE l.id = s.node AND {schema}.is_alive(l.until, l.lease)
)
