DELETE FROM holdfast_share WHERE queue = :queue AND name = :name
