DELETE FROM holdfast_weight_rule WHERE queue = :queue AND key = :key
