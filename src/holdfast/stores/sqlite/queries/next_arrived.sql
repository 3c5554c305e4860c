-- One number for each call that submits; taken under the write lock, so numbers are in commit order.
UPDATE holdfast_meta SET value = value + 1 WHERE name = 'arrived' RETURNING value
