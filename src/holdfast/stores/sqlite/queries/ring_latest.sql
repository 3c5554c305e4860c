SELECT number, writer, body FROM holdfast_ring WHERE name = :ring
