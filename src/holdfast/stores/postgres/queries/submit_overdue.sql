-- Above the position of its partition only: what is at or below it stands in the backlog.
WITH place AS MATERIALIZED (
    SELECT p.queue, p.partition, coalesce(m.pass, 0)::text::xid8 AS arrived,
        coalesce(m.seq, 0) AS id
    FROM {schema}.partition AS p LEFT JOIN LATERAL (
        SELECT m.pass, m.seq FROM {schema}.mark AS m
        WHERE m.queue = p.queue AND m.partition = p.partition AND m.priority = -1
        ORDER BY m.kind DESC, m.number DESC LIMIT 1
    ) AS m ON true
),
chosen AS MATERIALIZED (
    SELECT t.place, t.is_first_look
    FROM place AS w CROSS JOIN LATERAL (
        SELECT t.ctid AS place, t.deadline_at IS NULL AND t.version > 1 AS is_first_look
        FROM {schema}.task AS t
        WHERE t.state = 1 AND t.queue = w.queue AND t.partition = w.partition
            AND (t.arrived, t.id) > (w.arrived, w.id)
            AND coalesce(
                t.deadline_at,
                t.enqueued_at + :deadline_s::double precision * interval '1 second'
            ) < {schema}.now()
        ORDER BY t.arrived, t.id LIMIT :limit::integer
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS t
    LIMIT :limit::integer
),
postponed AS (
    UPDATE {schema}.task AS t
    SET deadline_at = {schema}.now() + :deadline_s::double precision * interval '1 second'
    FROM chosen AS c WHERE t.ctid = c.place
    RETURNING
        t.id, t.version, t.queue, t.partition, t.kind, t.priority, t.fairness_key, t.weight,
        t.ordering_key, NULL::timestamptz, t.arrived, c.is_first_look
)
SELECT p.* FROM postponed AS p ORDER BY p.arrived, p.id
