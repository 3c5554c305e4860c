UPDATE {schema}.schedule AS s SET version = s.version + 1, next_at = NULL
WHERE s.name = ANY (:names::text[]) AND s.next_at IS NOT NULL
RETURNING s.name
