ALTER TABLE {schema}.archive DETACH PARTITION {schema}.{day}
