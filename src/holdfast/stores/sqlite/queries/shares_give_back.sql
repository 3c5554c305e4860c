-- Those of nodes that run nothing any more.
DELETE FROM holdfast_share
WHERE node IN (SELECT value FROM json_each(:nodes)) AND NOT EXISTS (
  SELECT 1 FROM holdfast_task AS t WHERE t.state = 2 AND t.node = holdfast_share.node
)
