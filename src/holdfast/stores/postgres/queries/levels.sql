SELECT
    c.place, b.pass, b.seq, b.task, b.version, b.fairness_key, b.weight, b.ordering_key, b.arrived
FROM unnest(
    :partitions::smallint[], :priorities::smallint[], :kinds::text[], :passes::bigint[],
    :seqs::bigint[], :limits::integer[]
) WITH ORDINALITY AS c (partition, priority, kind, pass, seq, most, place)
CROSS JOIN LATERAL (
    SELECT b.* FROM {schema}.backlog AS b
    WHERE b.queue = :queue::text AND b.partition = c.partition
        AND b.priority = c.priority AND b.kind = c.kind
        AND (b.pass, b.seq) > (c.pass, c.seq)
    ORDER BY b.pass, b.seq
    LIMIT c.most
) AS b
