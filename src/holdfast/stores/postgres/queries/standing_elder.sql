-- As grab_ordered.sql judges: a sibling that runs, or else the oldest that goes first.
(
    SELECT s.id, s.state FROM {schema}.task AS s
    WHERE s.queue = :queue::text AND s.ordering_key = :ordering_key::text
        AND s.ordering_key IS NOT NULL AND s.state = 2
    LIMIT 1
)
UNION ALL
(
    SELECT s.id, s.state FROM {schema}.task AS s
    WHERE s.queue = :queue::text AND s.ordering_key = :ordering_key::text
        AND s.ordering_key IS NOT NULL AND s.id < :id::bigint
        AND (s.state + 0 IN (1, 4) OR (s.state + 0 = 0 AND s.deliveries > 0))
    ORDER BY s.id LIMIT 1
)
LIMIT 1
