SELECT mode FROM holdfast_fairness_rule WHERE queue = :queue
