-- Of those that were made at run time: what code names is made anew at its next start.
WITH old AS MATERIALIZED (
    SELECT s.name FROM {schema}.schedule AS s
    WHERE
        s.next_at IS NULL AND NOT s.paused AND s.source = 'run time'
        AND s.last_at < {schema}.now() - :keep_days::double precision * interval '1 day'
    LIMIT :limit::integer
    FOR UPDATE SKIP LOCKED
)
DELETE FROM {schema}.schedule AS s USING old AS o WHERE s.name = o.name
