SELECT value FROM holdfast_meta WHERE name = :name
