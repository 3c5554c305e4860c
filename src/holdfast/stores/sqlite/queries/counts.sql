-- Each of the hot states is counted from its own index, the final ones from the archive's.
SELECT 0, count(*) FROM holdfast_task WHERE state = 0
UNION ALL SELECT 1, count(*) FROM holdfast_task WHERE state = 1
UNION ALL SELECT 2, count(*) FROM holdfast_task WHERE state = 2
UNION ALL SELECT 4, count(*) FROM holdfast_task WHERE state = 4
UNION ALL SELECT state, count(*) FROM holdfast_archive GROUP BY state
