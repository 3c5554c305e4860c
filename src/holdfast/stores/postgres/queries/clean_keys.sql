WITH old AS MATERIALIZED (
    SELECT k.scope, k.name FROM {schema}.key AS k
    WHERE k.until IS NOT NULL AND k.until <= {schema}.now()
    ORDER BY k.until LIMIT :limit::integer
    FOR UPDATE SKIP LOCKED
)
DELETE FROM {schema}.key AS k USING old AS o WHERE k.scope = o.scope AND k.name = o.name
