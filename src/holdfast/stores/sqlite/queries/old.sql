SELECT id FROM holdfast_archive
WHERE state IN (3, 5, 6) AND finished_at < :before
LIMIT :limit
