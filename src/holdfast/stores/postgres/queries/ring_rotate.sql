DELETE FROM {schema}.ring_record AS r
USING {schema}.ring AS latest
WHERE latest.name = :ring::text AND r.ring = latest.name
    AND r.number <= latest.number - :kept::bigint
