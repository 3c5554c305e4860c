INSERT INTO {schema}.node (id, until, queues, kinds)
VALUES (
    :node::text, {schema}.now() + :lease_s::double precision * interval '1 second',
    :queues::text[], :kinds::text[]
)
ON CONFLICT (id) DO UPDATE SET
    until = excluded.until, queues = excluded.queues, kinds = excluded.kinds
