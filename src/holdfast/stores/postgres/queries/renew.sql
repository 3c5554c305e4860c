-- A new row takes the highest number and one more; if another node was faster, the unique index
-- refuses this one, and the caller starts again from here.
INSERT INTO {schema}.node (id, until, lease, queues, kinds, facts, number)
SELECT
    :node::text, {schema}.now() + l.lease, l.lease, :queues::text[], :kinds::text[],
    :facts::text, (SELECT coalesce(max(n.number), 0) + 1 FROM {schema}.node AS n)
FROM (SELECT :lease_s::double precision * interval '1 second' AS lease) AS l
ON CONFLICT (id) DO UPDATE SET
    until = excluded.until, lease = excluded.lease,
    queues = excluded.queues, kinds = excluded.kinds, facts = excluded.facts
