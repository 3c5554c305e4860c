-- The columns of an enqueue, given as they are: nothing is decided here.
INSERT INTO {schema}.task (
    id, queue, partition, kind, priority, state, arrived, due_at, enqueued_at,
    fairness_key, weight, ordering_key, metadata, payload
)
VALUES (
    nextval('{schema}.task_id'), :queue, :partition, :kind, :priority, :state,
    pg_current_xact_id(), :due_at, now(),
    :fairness_key, :weight, :ordering_key, :metadata, :payload
)
RETURNING id
