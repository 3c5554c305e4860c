SELECT w.key, w.weight FROM {schema}.weight_rule AS w WHERE w.queue = :queue::text
