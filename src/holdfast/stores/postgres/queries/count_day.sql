SELECT count(*) FROM {schema}.{day}
