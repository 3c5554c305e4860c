-- Each part counts only under its partition's fence: the row locked FOR SHARE at the epoch, in
-- this very statement.  Appends that are repeated after a lost reply find their levels taken: that
-- fails the statement, which then is run `again` and leaves those out.  (ON CONFLICT would look for
-- every level twice, and write a third more log.)
-- OFFSET 0 keeps the range scans out of the joins, which by ctid have one order (see grab.sql).
WITH fence AS MATERIALIZED (
    SELECT f.partition
    FROM unnest(:partitions::smallint[], :epochs::bigint[]) AS f (partition, epoch)
    CROSS JOIN LATERAL (
        SELECT FROM {schema}.partition AS p
        WHERE p.queue = :queue::text AND p.partition = f.partition AND p.epoch = f.epoch
        FOR SHARE
    ) AS p
),
appended AS (
    INSERT INTO {schema}.backlog (
        queue, partition, priority, kind, lane, pass, seq, task, arrived, version, weight,
        fairness_key, ordering_key
    )
    SELECT
        :queue::text, e.partition, coalesce(e.priority, :entry_priority::smallint),
        coalesce(e.kind, :entry_kind::text), coalesce(e.lane, :entry_lane::text),
        e.pass, e.seq, e.task, e.arrived,
        coalesce(e.version, :entry_version::integer), coalesce(e.weight, :entry_weight::real),
        coalesce(e.fairness_key, :entry_fairness_key::text),
        coalesce(e.ordering_key, :entry_ordering_key::text)
    FROM unnest(
        :entry_partitions::smallint[], :entry_priorities::smallint[], :entry_kinds::text[],
        :entry_passes::bigint[], :entry_seqs::bigint[], :entry_tasks::bigint[],
        :entry_arriveds::bigint[], :entry_versions::integer[], :entry_weights::real[],
        :entry_fairness_keys::text[], :entry_ordering_keys::text[], :entry_lanes::text[]
    ) AS e (
        partition, priority, kind, pass, seq, task, arrived, version, weight, fairness_key,
        ordering_key, lane
    )
    WHERE e.partition = ANY (ARRAY(SELECT f.partition FROM fence AS f))
        AND NOT (
            :again::boolean AND EXISTS (
                SELECT FROM {schema}.backlog AS b
                WHERE b.queue = :queue::text AND b.partition = e.partition
                    AND b.priority = coalesce(e.priority, :entry_priority::smallint)
                    AND b.kind = coalesce(e.kind, :entry_kind::text)
                    AND b.lane = coalesce(e.lane, :entry_lane::text)
                    AND b.pass = e.pass AND b.seq = e.seq
                OFFSET 0
            )
        )
),
trimmed AS (
    DELETE FROM {schema}.backlog AS b
    USING unnest(
        :trim_partitions::smallint[], :trim_priorities::smallint[], :trim_kinds::text[],
        :trim_lanes::text[], :trim_from_passes::bigint[], :trim_from_seqs::bigint[],
        :trim_to_passes::bigint[], :trim_to_seqs::bigint[]
    ) AS r (partition, priority, kind, lane, from_pass, from_seq, to_pass, to_seq)
    CROSS JOIN LATERAL (
        SELECT b.ctid AS place FROM {schema}.backlog AS b
        WHERE b.queue = :queue::text AND b.partition = r.partition
            AND b.priority = r.priority AND b.kind = r.kind AND b.lane = r.lane
            AND (b.pass, b.seq) > (r.from_pass, r.from_seq)
            AND (b.pass, b.seq) <= (r.to_pass, r.to_seq)
        OFFSET 0
    ) AS t
    WHERE r.partition = ANY (ARRAY(SELECT f.partition FROM fence AS f)) AND b.ctid = t.place
),
forgotten AS (
    DELETE FROM {schema}.mark AS m
    USING unnest(
        :old_partitions::smallint[], :old_priorities::smallint[], :old_kinds::text[],
        :old_froms::bigint[], :old_tos::bigint[]
    ) AS r (partition, priority, kind, from_number, to_number)
    CROSS JOIN LATERAL (
        SELECT m.ctid AS place FROM {schema}.mark AS m
        WHERE m.queue = :queue::text AND m.partition = r.partition
            AND m.priority = r.priority AND m.kind = r.kind
            AND m.number >= r.from_number AND m.number < r.to_number
        OFFSET 0
    ) AS t
    WHERE r.partition = ANY (ARRAY(SELECT f.partition FROM fence AS f)) AND m.ctid = t.place
),
marked AS (
    INSERT INTO {schema}.mark (queue, partition, priority, kind, pass, seq, top_pass)
    SELECT :queue::text, n.*
    FROM unnest(
        :mark_partitions::smallint[], :mark_priorities::smallint[], :mark_kinds::text[],
        :mark_passes::bigint[], :mark_seqs::bigint[], :mark_top_passes::bigint[]
    ) AS n (partition, priority, kind, pass, seq, top_pass)
    WHERE n.partition = ANY (ARRAY(SELECT f.partition FROM fence AS f))
    RETURNING partition, priority, kind, number
),
counted AS (
    INSERT INTO {schema}.counter AS c (queue, partition, priority, kind, passes)
    SELECT :queue::text, n.*
    FROM unnest(
        :counter_partitions::smallint[], :counter_priorities::smallint[],
        :counter_kinds::text[], :counter_passes::text[]
    ) AS n (partition, priority, kind, passes)
    WHERE n.partition = ANY (ARRAY(SELECT f.partition FROM fence AS f))
    ON CONFLICT (queue, partition, priority, kind) DO UPDATE SET passes = excluded.passes
)
SELECT f.partition, NULL::smallint, NULL::text, NULL::bigint FROM fence AS f
UNION ALL
SELECT m.partition, m.priority, m.kind, m.number FROM marked AS m
