DELETE FROM {schema}.key AS k USING {schema}.{day} AS a WHERE k.task = a.id AND k.until IS NULL
