SELECT r.number, r.writer, r.body FROM {schema}.ring AS r WHERE r.name = :ring::text
