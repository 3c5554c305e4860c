DROP TABLE {schema}.{day}
