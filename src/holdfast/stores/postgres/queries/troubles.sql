SELECT
    (SELECT count(*) FROM (
        SELECT 1 FROM {schema}.task AS t WHERE t.state = 4 LIMIT :limit::integer
    ) AS errors),
    (SELECT count(*) FROM (
        SELECT 1 FROM {schema}.task AS t
        WHERE t.state = 2 AND t.deadline_at < {schema}.now() LIMIT :limit::integer
    ) AS stuck)
