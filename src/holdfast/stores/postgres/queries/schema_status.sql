SELECT
    (SELECT max(m.number) FROM {schema}.migration AS m),
    (SELECT m.value::integer FROM {schema}.meta AS m WHERE m.name = 'partitions'),
    (SELECT m.value::integer FROM {schema}.meta AS m WHERE m.name = 'code_min')
