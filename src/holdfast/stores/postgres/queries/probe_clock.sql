SELECT {schema}.now()
