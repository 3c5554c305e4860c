DELETE FROM holdfast_schedule WHERE name IN (
  SELECT name FROM holdfast_schedule
  WHERE next_at IS NULL AND paused = 0 AND source = 'run time' AND last_at < :before
  LIMIT :limit
)
