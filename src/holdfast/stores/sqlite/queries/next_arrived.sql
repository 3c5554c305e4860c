-- One number for each call that submits again; taken under the write lock, so numbers are in commit
-- order.  The ids of new tasks come from the same counter.
UPDATE sqlite_sequence SET seq = seq + 1 WHERE name = 'holdfast_task' RETURNING seq
