SELECT key, weight FROM holdfast_weight_rule WHERE queue = :queue
