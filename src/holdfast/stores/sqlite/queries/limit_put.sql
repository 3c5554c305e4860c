INSERT INTO holdfast_limit_rule (queue, name, concurrency, rate, kind, key, burst, local)
VALUES (:queue, :name, :concurrency, :rate, :kind, :key, :burst, :local)
ON CONFLICT (queue, name) DO UPDATE SET
  concurrency = excluded.concurrency, rate = excluded.rate, kind = excluded.kind,
  key = excluded.key, burst = excluded.burst, local = excluded.local
