-- A lease of no length: also the grace after a start of the server gives it nothing.
WITH ended AS (
    UPDATE {schema}.node AS n
    SET until = least(n.until, {schema}.now()), lease = interval '0'
    WHERE n.id = ANY (:nodes::text[])
),
given_up AS (
    UPDATE {schema}.duty AS d SET holder = NULL, due_at = {schema}.now()
    WHERE d.holder = ANY (:nodes::text[])
)
UPDATE {schema}.partition AS p SET owner = NULL WHERE p.owner = ANY (:nodes::text[])
