-- The rows are chosen without locks and then locked by their ids: who waits for whom is decided
-- in the order of time, and a row that somebody holds is left for the next look.
WITH moment AS MATERIALIZED (SELECT {schema}.now() AS now),
ripe AS MATERIALIZED (
    SELECT t.id, t.due_at
    FROM moment AS m CROSS JOIN LATERAL (
        SELECT t.id, t.due_at FROM {schema}.task AS t
        WHERE t.state = 0 AND t.due_at >= :from::timestamptz AND t.due_at <= m.now
        ORDER BY t.due_at, t.id LIMIT :limit::integer
    ) AS t
),
chosen AS MATERIALIZED (
    SELECT r.due_at, t.place
    FROM ripe AS r CROSS JOIN LATERAL (
        SELECT t.ctid AS place FROM {schema}.task AS t
        WHERE t.id = r.id AND t.state + 0 = 0 AND t.due_at = r.due_at
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS t
),
submitted AS (
    UPDATE {schema}.task AS t
    SET state = 1, version = t.version + 1, arrived = pg_current_xact_id(), node = NULL, due_at = NULL
    FROM chosen AS c WHERE t.ctid = c.place
    RETURNING
        t.id, t.version, t.queue, t.partition, t.kind, t.priority, t.fairness_key, t.weight,
        t.ordering_key, NULL::timestamptz, t.arrived, c.due_at AS was_due_at
),
later AS MATERIALIZED (
    SELECT (
        SELECT t.due_at FROM {schema}.task AS t
        WHERE t.state = 0 AND t.due_at > m.now ORDER BY t.due_at, t.id LIMIT 1
    ) AS next_due_at
    FROM moment AS m
)
SELECT m.now, l.next_due_at, (SELECT count(*) FROM ripe), s.*
FROM moment AS m CROSS JOIN later AS l LEFT JOIN submitted AS s ON true
ORDER BY s.was_due_at, s.id
