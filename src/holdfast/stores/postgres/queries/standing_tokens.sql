SELECT b.name, b.key, b.tokens, extract(epoch FROM {schema}.now() - b.at)::double precision
FROM {schema}.bucket AS b WHERE b.queue = :queue::text AND b.key IN ('', :key::text)
