-- The lowest version of the code that can work with these tables; newer tables do not stop it.
INSERT INTO {schema}.meta (name, value) VALUES ('code_min', '4');

-- Work that one node at a time keeps.  Stand-ins count their delay from `due_at`.
CREATE TABLE {schema}.duty (
    name text COLLATE "C" PRIMARY KEY,
    number bigint NOT NULL,
    holder text COLLATE "C",
    due_at timestamptz NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50);

-- `number` is the index of the node's registration; nodes of older code have none.  `facts` is JSON
-- that the node tells of itself, `asked` what a person wants it to do.
ALTER TABLE {schema}.node
    ADD COLUMN number bigint,
    ADD COLUMN started_at timestamptz NOT NULL DEFAULT {schema}.now(),
    ADD COLUMN facts text NOT NULL DEFAULT '{}',
    ADD COLUMN asked text COLLATE "C";
CREATE UNIQUE INDEX node_number ON {schema}.node (number);

-- One waker serves all queues, so what is due is found in the order of time alone.
-- Nodes of older code, which ask queue by queue, are served by the same index.
CREATE INDEX task_due ON {schema}.task (due_at, id) INCLUDE (queue) WHERE state = 0;
DROP INDEX {schema}.task_waiting;
