SELECT c.place, n.many
FROM unnest(
    :partitions::smallint[], :priorities::smallint[], :kinds::text[], :lanes::text[],
    :passes::bigint[], :seqs::bigint[], :limits::integer[]
) WITH ORDINALITY AS c (partition, priority, kind, lane, pass, seq, most, place)
CROSS JOIN LATERAL (
    SELECT count(*) AS many FROM (
        SELECT 1 FROM {schema}.backlog AS b
        WHERE b.queue = :queue::text AND b.partition = c.partition
            AND b.priority = c.priority AND b.kind = c.kind AND b.lane = c.lane
            AND (b.pass, b.seq) > (c.pass, c.seq)
        LIMIT c.most
    ) AS found
) AS n
