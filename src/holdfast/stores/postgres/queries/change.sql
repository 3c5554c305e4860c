-- A person's wish starts the counting of losses anew: the task gets its full number of deliveries.
UPDATE {schema}.task AS t SET
    state = c.state,
    version = t.version + 1,
    losses = 0,
    arrived = CASE WHEN c.state = 1 THEN pg_current_xact_id() END,
    due_at = CASE WHEN c.state = 0 THEN m.now + c.delay_s * interval '1 second' END,
    deadline_at = NULL,
    error = coalesce(c.error, t.error)
FROM (SELECT {schema}.now() AS now) AS m
CROSS JOIN unnest(
    :ids::bigint[], :versions::integer[], :states::smallint[], :errors::text[],
    :delays_s::double precision[]
) AS c (id, version, state, error, delay_s)
WHERE t.id = c.id AND t.version = c.version
RETURNING
    t.id, t.version, t.queue, t.partition, t.kind, t.priority, t.fairness_key, t.weight,
    t.ordering_key, NULL::timestamptz, coalesce(t.arrived::text::bigint, 0)
