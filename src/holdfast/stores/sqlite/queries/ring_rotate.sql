DELETE FROM holdfast_ring_record
WHERE ring = :ring
  AND number <= (SELECT number FROM holdfast_ring WHERE name = :ring) - :kept
