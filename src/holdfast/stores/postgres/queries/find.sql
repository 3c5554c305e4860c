SELECT f.* FROM (
    (
        SELECT
            t.id, t.queue, t.partition, t.kind, t.state, t.version, t.priority, t.payload,
            t.attempts, t.deliveries, t.enqueued_at, t.due_at, t.deadline_at,
            NULL::timestamptz AS finished_at, t.node, t.fairness_key, t.ordering_key, t.metadata,
            t.error, NULL::bytea AS result
        FROM {schema}.task AS t
        WHERE t.id > :after::bigint AND t.state = ANY (:hot_states::smallint[])
            AND (:queues::text[] = '{}' OR t.queue = ANY (:queues::text[]))
            AND (:kinds::text[] = '{}' OR t.kind = ANY (:kinds::text[]))
            AND (:fairness_keys::text[] = '{}' OR t.fairness_key = ANY (:fairness_keys::text[]))
        ORDER BY t.id LIMIT :limit::integer
    )
    UNION ALL
    (
        SELECT
            a.id, a.queue, a.partition, a.kind, a.state, a.version, a.priority, a.payload,
            a.attempts, a.deliveries, a.enqueued_at, NULL, NULL, a.finished_at, a.node,
            a.fairness_key, a.ordering_key, a.metadata, a.error, a.result
        FROM {schema}.archive AS a
        WHERE a.id > :after::bigint AND a.state = ANY (:final_states::smallint[])
            AND (:queues::text[] = '{}' OR a.queue = ANY (:queues::text[]))
            AND (:kinds::text[] = '{}' OR a.kind = ANY (:kinds::text[]))
            AND (:fairness_keys::text[] = '{}' OR a.fairness_key = ANY (:fairness_keys::text[]))
        ORDER BY a.id LIMIT :limit::integer
    )
) AS f
ORDER BY f.id LIMIT :limit::integer
