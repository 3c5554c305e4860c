-- The first record of a duty is an insert, so that of two who are first one wins as well.
WITH wanted AS MATERIALIZED (
    SELECT w.name, w.number, {schema}.now() + w.rest_s * interval '1 second' AS due_at
    FROM unnest(:names::text[], :numbers::bigint[], :rests_s::double precision[])
        AS w (name, number, rest_s)
),
made AS (
    INSERT INTO {schema}.duty AS d (name, number, holder, due_at)
    SELECT w.name, 1, :node::text, w.due_at FROM wanted AS w WHERE w.number = 0
    ON CONFLICT (name) DO NOTHING
    RETURNING d.name
),
kept AS (
    UPDATE {schema}.duty AS d
    SET number = d.number + 1, holder = :node::text, due_at = w.due_at
    FROM wanted AS w WHERE d.name = w.name AND d.number = w.number AND w.number > 0
    RETURNING d.name
)
SELECT m.name FROM made AS m UNION ALL SELECT k.name FROM kept AS k
