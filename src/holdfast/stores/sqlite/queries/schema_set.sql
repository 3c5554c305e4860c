UPDATE holdfast_meta SET value = :version WHERE name = 'schema'
