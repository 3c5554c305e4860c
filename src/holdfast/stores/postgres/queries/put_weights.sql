INSERT INTO {schema}.weight_rule AS w (queue, key, weight)
SELECT :queue::text, n.* FROM unnest(:keys::text[], :weights::double precision[]) AS n (key, weight)
ON CONFLICT (queue, key) DO UPDATE SET weight = excluded.weight
