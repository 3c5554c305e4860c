SELECT number, writer, body FROM holdfast_ring_record
WHERE ring = :ring AND number > :after ORDER BY number LIMIT :limit
