UPDATE {schema}.schedule AS s
SET
    version = s.version + 1, next_at = :next_at::timestamptz,
    last_at = coalesce(:last_at::timestamptz, s.last_at), missed = s.missed + :missed::bigint
WHERE s.name = :name::text AND s.version = :version::bigint AND s.next_at <= {schema}.now()
RETURNING s.version
