INSERT INTO {schema}.bucket AS b (queue, name, key, tokens, at)
SELECT :queue::text, n.name, n.key, n.tokens, {schema}.now()
FROM unnest(:names::text[], :keys::text[], :tokens::double precision[]) AS n (name, key, tokens)
ON CONFLICT (queue, name, key) DO UPDATE SET tokens = excluded.tokens, at = excluded.at
