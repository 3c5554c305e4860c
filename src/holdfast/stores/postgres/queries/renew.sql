INSERT INTO {schema}.node (id, until, lease, queues, kinds)
SELECT :node::text, {schema}.now() + l.lease, l.lease, :queues::text[], :kinds::text[]
FROM (SELECT :lease_s::double precision * interval '1 second' AS lease) AS l
ON CONFLICT (id) DO UPDATE SET
    until = excluded.until, lease = excluded.lease,
    queues = excluded.queues, kinds = excluded.kinds
