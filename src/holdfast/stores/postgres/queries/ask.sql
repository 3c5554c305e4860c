UPDATE {schema}.node AS n SET asked = :what::text WHERE n.id = :node::text RETURNING n.id
