SELECT t.state, count(*) FROM {schema}.task AS t GROUP BY t.state
UNION ALL
SELECT a.state, count(*) FROM {schema}.archive AS a GROUP BY a.state
