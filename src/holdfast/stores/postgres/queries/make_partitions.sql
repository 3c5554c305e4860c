INSERT INTO {schema}.partition (queue, partition)
SELECT :queue::text, n FROM generate_series(0, :count::integer - 1) AS n
ON CONFLICT DO NOTHING
