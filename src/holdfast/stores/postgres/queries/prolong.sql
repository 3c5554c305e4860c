-- Nothing but the time: the rest of the row is the node's own to say.
UPDATE {schema}.node AS n
SET until = {schema}.now() + :lease_s::double precision * interval '1 second'
WHERE n.id = :node::text
RETURNING n.id
