SELECT w.partition, m.priority, m.kind, m.pass, m.seq, m.top_pass
FROM unnest(:partitions::smallint[]) AS w (partition)
CROSS JOIN LATERAL (
    SELECT DISTINCT ON (m.priority, m.kind) m.*
    FROM {schema}.mark AS m
    WHERE m.queue = :queue::text AND m.partition = w.partition
    ORDER BY m.priority DESC, m.kind DESC, m.number DESC
) AS m
