SELECT number, node, held, wanted, ended FROM holdfast_share
WHERE queue = :queue AND name = :name AND key = :key
