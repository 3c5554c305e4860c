INSERT INTO holdfast_ring_record (ring, number, writer, body)
VALUES (:ring, :number, :writer, :body)
