INSERT INTO {schema}.limit_rule AS l (
    queue, name, concurrency, rate, kind, key, burst, local
)
VALUES (
    :queue::text, :name::text, :concurrency::integer, :rate::double precision, :kind::text,
    :key::text, :burst::double precision, :local::boolean
)
ON CONFLICT (queue, name) DO UPDATE SET
    concurrency = excluded.concurrency, rate = excluded.rate, kind = excluded.kind,
    key = excluded.key, burst = excluded.burst, local = excluded.local
