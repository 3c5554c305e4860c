SELECT born_at, grace FROM holdfast_birth
