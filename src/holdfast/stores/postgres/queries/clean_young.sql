-- For keeping less than a day, when no whole table is old enough.
WITH old AS MATERIALIZED (
    SELECT a.id, a.finished_at FROM {schema}.archive AS a
    WHERE a.finished_at < {schema}.now() - :keep_days::double precision * interval '1 day'
    ORDER BY a.finished_at LIMIT :limit::integer
),
freed AS (
    DELETE FROM {schema}.key AS k USING old AS o WHERE k.task = o.id AND k.until IS NULL
)
DELETE FROM {schema}.archive AS a USING old AS o
WHERE a.id = o.id AND a.finished_at = o.finished_at
RETURNING a.id
