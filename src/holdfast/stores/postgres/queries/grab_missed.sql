-- What a grab did not return and is still SUBMITTED at the version named: not decided.  For an
-- ordering key: whether a sibling is in the way, and whether the partition is ours.
SELECT
    t.id,
    t.ordering_key IS NOT NULL AND (
        EXISTS (
            SELECT FROM {schema}.task AS s
            WHERE s.queue = t.queue AND s.ordering_key = t.ordering_key
                AND s.ordering_key IS NOT NULL AND s.state = 2
            OFFSET 0
        )
        OR EXISTS (
            SELECT FROM {schema}.task AS s
            WHERE s.queue = t.queue AND s.ordering_key = t.ordering_key
                AND s.ordering_key IS NOT NULL AND s.id < t.id
                AND (
                    s.state + 0 = 1 OR (s.state + 0 = 0 AND s.deliveries > 0)
                    OR (s.state + 0 = 4 AND NOT t.kind = ANY (:skip_errors_of::text[]))
                )
        )
    ),
    t.ordering_key IS NULL OR EXISTS (
        SELECT FROM {schema}.partition AS p
        WHERE p.queue = t.queue AND p.partition = t.partition AND p.epoch = w.epoch
    ),
    t.ordering_key
FROM unnest(:ids::bigint[], :versions::integer[], :epochs::bigint[]) AS w (id, version, epoch)
CROSS JOIN LATERAL (
    SELECT t.id, t.queue, t.partition, t.kind, t.ordering_key FROM {schema}.task AS t
    WHERE t.id = w.id AND t.version = w.version AND t.state + 0 = 1 LIMIT 1
) AS t
