SELECT EXISTS (SELECT 1 FROM holdfast_partition WHERE owner IS NOT NULL)
    OR EXISTS (SELECT 1 FROM holdfast_task WHERE state = 2)
