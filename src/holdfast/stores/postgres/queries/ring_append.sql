-- The latest and the log change together.  Only the first record finds no row to compare with.
WITH turned AS (
    INSERT INTO {schema}.ring AS r (name, number, writer, body)
    SELECT :ring::text, :number::bigint, :writer::text, :body::bytea
    WHERE :number::bigint = 1
        OR EXISTS (SELECT FROM {schema}.ring AS known WHERE known.name = :ring::text)
    ON CONFLICT (name) DO UPDATE
    SET number = excluded.number, writer = excluded.writer, body = excluded.body
    WHERE r.number = excluded.number - 1
    RETURNING r.number
)
INSERT INTO {schema}.ring_record (ring, number, writer, body)
SELECT :ring::text, t.number, :writer::text, :body::bytea FROM turned AS t
RETURNING number
