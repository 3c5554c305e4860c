-- The first version is an insert, so that of two who are first one wins as well.
WITH put AS MATERIALIZED (
    SELECT
        :name::text AS name, :version::bigint AS version, :timing::text AS timing,
        :kind::text AS kind, :queue::text AS queue, :priority::smallint AS priority,
        :weight::real AS weight, :partition::smallint AS partition,
        :fairness_key::text AS fairness_key, :ordering_key::text AS ordering_key,
        :metadata::bytea AS metadata, :payload::bytea AS payload, :source::text AS source,
        :paused::boolean AS paused, :next_at::timestamptz AS next_at,
        :last_at::timestamptz AS last_at, :missed::bigint AS missed
),
made AS (
    INSERT INTO {schema}.schedule (
        name, version, timing, kind, queue, priority, weight, partition, fairness_key,
        ordering_key, metadata, payload, source, paused, next_at, last_at, missed
    )
    SELECT
        p.name, 1, p.timing, p.kind, p.queue, p.priority, p.weight, p.partition, p.fairness_key,
        p.ordering_key, p.metadata, p.payload, p.source, p.paused, p.next_at, p.last_at, p.missed
    FROM put AS p WHERE p.version = 0
    ON CONFLICT (name) DO NOTHING
    RETURNING version
),
kept AS (
    UPDATE {schema}.schedule AS s
    SET
        version = s.version + 1, timing = p.timing, kind = p.kind, queue = p.queue,
        priority = p.priority, weight = p.weight, partition = p.partition,
        fairness_key = p.fairness_key, ordering_key = p.ordering_key, metadata = p.metadata,
        payload = p.payload, source = p.source, paused = p.paused, next_at = p.next_at,
        last_at = p.last_at, missed = p.missed
    FROM put AS p WHERE s.name = p.name AND s.version = p.version AND p.version > 0
    RETURNING s.version
)
SELECT m.version FROM made AS m UNION ALL SELECT k.version FROM kept AS k
