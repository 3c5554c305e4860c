SELECT extract(epoch FROM {schema}.now())::double precision
