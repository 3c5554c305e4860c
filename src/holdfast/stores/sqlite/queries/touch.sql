UPDATE holdfast_meta SET value = value WHERE name = 'schema'
