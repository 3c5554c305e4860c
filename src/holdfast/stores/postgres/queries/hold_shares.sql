SELECT s.number FROM {schema}.share AS s
WHERE s.number = ANY (:numbers::bigint[]) AND s.node = :node::text AND NOT s.ended
ORDER BY s.number
FOR SHARE
