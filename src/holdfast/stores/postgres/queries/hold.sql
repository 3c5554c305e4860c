-- Locks the rows in the order of the ids and waits for whoever has them; what they are is read
-- by a later statement, whose snapshot sees what those others committed.
SELECT t.id
FROM unnest(:ids::bigint[]) AS w (id)
CROSS JOIN LATERAL (
    SELECT t.id FROM {schema}.task AS t WHERE t.id = w.id FOR NO KEY UPDATE
) AS t
