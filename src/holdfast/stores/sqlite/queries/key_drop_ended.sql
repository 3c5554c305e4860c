DELETE FROM holdfast_key WHERE (scope, name) IN (
  SELECT scope, name FROM holdfast_key WHERE until IS NOT NULL AND until <= :now LIMIT :limit)
