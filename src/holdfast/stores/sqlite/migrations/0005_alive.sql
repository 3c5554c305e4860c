-- The lowest version of the code that can work with these tables; newer tables do not stop it.
INSERT INTO holdfast_meta (name, value) VALUES ('code_min', 4);

-- Work that one node at a time keeps.  Stand-ins count their delay from `due_at`.
CREATE TABLE holdfast_duty (
  name TEXT PRIMARY KEY,
  number INTEGER NOT NULL,
  holder TEXT,
  due_at INTEGER NOT NULL
) WITHOUT ROWID;

-- One waker serves all queues, so what is due is found in the order of time alone.
DROP INDEX holdfast_task_waiting;
CREATE INDEX holdfast_task_waiting ON holdfast_task (due_at) WHERE state = 0;
