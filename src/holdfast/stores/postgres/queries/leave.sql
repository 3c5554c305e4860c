WITH gone AS (DELETE FROM {schema}.node AS n WHERE n.id = ANY (:nodes::text[]))
UPDATE {schema}.partition AS p SET owner = NULL WHERE p.owner = ANY (:nodes::text[])
