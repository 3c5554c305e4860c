DELETE FROM holdfast_limit_rule WHERE queue = :queue AND name = :name
