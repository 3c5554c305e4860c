UPDATE {schema}.task AS t
SET deadline_at = {schema}.now() + :deadline_s::double precision * interval '1 second'
FROM unnest(:ids::bigint[], :versions::integer[]) AS w (id, version)
WHERE t.id = w.id AND t.version = w.version AND t.state + 0 = 2
