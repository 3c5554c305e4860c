SELECT f.mode FROM {schema}.fairness_rule AS f WHERE f.queue = :queue::text
