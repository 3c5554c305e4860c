UPDATE holdfast_schedule SET
  version = version + 1, next_at = :next_at, last_at = coalesce(:last_at, last_at),
  missed = missed + :missed
WHERE name = :name AND version = :version AND next_at <= :now RETURNING version
