SELECT
  (SELECT count(*) FROM (SELECT 1 FROM holdfast_task WHERE state = 4 LIMIT :limit)),
  (SELECT count(*) FROM (
    SELECT 1 FROM holdfast_task INDEXED BY holdfast_task_processing
    WHERE state = 2 AND deadline_at < :now LIMIT :limit
  ))
