-- OFFSET 0: else an order by id may walk over all tasks that do not run.
SELECT f.id, f.kind, f.fairness_key, f.node FROM (
    SELECT t.id, t.kind, t.fairness_key, t.node FROM {schema}.task AS t
    WHERE t.state = 2 AND t.queue = :queue::text
    OFFSET 0
) AS f
ORDER BY f.id LIMIT :limit::integer
