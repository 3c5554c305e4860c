-- A lease that was renewed since somebody saw it ended is left alone, when only ended ones may go.
WITH leaving AS MATERIALIZED (
    SELECT w.id FROM unnest(:nodes::text[]) AS w (id)
    WHERE NOT :ended_only::boolean OR NOT EXISTS (
        SELECT FROM {schema}.node AS n WHERE n.id = w.id AND {schema}.is_alive(n.until, n.lease)
    )
),
gone AS (DELETE FROM {schema}.node AS n USING leaving AS l WHERE n.id = l.id),
given_up AS (
    UPDATE {schema}.duty AS d SET holder = NULL, due_at = {schema}.now()
    FROM leaving AS l WHERE d.holder = l.id
),
given_back AS (
    DELETE FROM {schema}.share AS s USING leaving AS l
    WHERE s.node = l.id AND NOT EXISTS (
        SELECT FROM {schema}.task AS t WHERE t.state = 2 AND t.node = s.node
    )
)
UPDATE {schema}.partition AS p SET owner = NULL FROM leaving AS l WHERE p.owner = l.id
