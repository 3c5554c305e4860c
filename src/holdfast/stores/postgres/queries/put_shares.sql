-- A share that has ended is a new one when its node comes back: grabs under the old one are refused.
WITH gone AS (
    DELETE FROM {schema}.share AS s
    USING unnest(:names::text[], :keys::text[], :helds::integer[], :wanteds::integer[])
        AS n (name, key, held, wanted)
    WHERE s.queue = :queue::text AND s.name = n.name AND s.key = n.key AND s.node = :node::text
        AND n.held = 0 AND n.wanted = 0
)
INSERT INTO {schema}.share AS s (queue, name, key, node, held, wanted)
SELECT :queue::text, n.name, n.key, :node::text, n.held, n.wanted
FROM unnest(:names::text[], :keys::text[], :helds::integer[], :wanteds::integer[])
    AS n (name, key, held, wanted)
WHERE n.held > 0 OR n.wanted > 0
ON CONFLICT (queue, name, key, node) DO UPDATE SET held = excluded.held, wanted = excluded.wanted
RETURNING s.name, s.key, s.number
