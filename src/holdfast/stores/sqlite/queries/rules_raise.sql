UPDATE holdfast_meta SET value = value + 1 WHERE name = 'rules'
