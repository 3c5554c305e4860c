DELETE FROM {schema}.schedule AS s WHERE s.name = :name::text RETURNING s.name
