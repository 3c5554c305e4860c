DELETE FROM {schema}.weight_rule AS w
WHERE w.queue = :queue::text AND w.key = ANY (:keys::text[])
