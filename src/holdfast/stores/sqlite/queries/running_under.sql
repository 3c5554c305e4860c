SELECT count(*) FROM holdfast_task
WHERE state = 2 AND node = :node AND queue = :queue
  AND (:kind IS NULL OR kind = :kind) AND (:key IS NULL OR fairness_key = :key)
