WITH dropped AS (
    DELETE FROM {schema}.limit_rule AS l
    WHERE l.queue = :queue::text AND l.name = ANY (:names::text[])
),
emptied AS (
    DELETE FROM {schema}.bucket AS b
    WHERE b.queue = :queue::text AND b.name = ANY (:names::text[])
)
DELETE FROM {schema}.share AS s WHERE s.queue = :queue::text AND s.name = ANY (:names::text[])
