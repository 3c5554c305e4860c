-- The kernel: tasks, archive, keys, partitions and backlogs.  Times are microseconds since 1970 UTC.

CREATE TABLE holdfast_meta (
  name TEXT PRIMARY KEY,
  value INTEGER NOT NULL
) WITHOUT ROWID;

-- AUTOINCREMENT: plain ids are used again once the table has drained.
-- The payload stands last, so that reading the other columns never walks its overflow pages.
CREATE TABLE holdfast_task (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  queue TEXT NOT NULL,
  partition INTEGER NOT NULL,
  kind TEXT NOT NULL,
  state INTEGER NOT NULL,
  version INTEGER NOT NULL DEFAULT 1,
  priority INTEGER NOT NULL,
  arrived INTEGER NOT NULL DEFAULT 0,
  attempts INTEGER NOT NULL DEFAULT 0,
  deliveries INTEGER NOT NULL DEFAULT 0,
  losses INTEGER NOT NULL DEFAULT 0,
  enqueued_at INTEGER NOT NULL,
  due_at INTEGER,
  deadline_at INTEGER,
  node TEXT,
  fairness_key TEXT,
  weight REAL NOT NULL DEFAULT 1.0,
  ordering_key TEXT,
  error TEXT,
  metadata BLOB,
  payload BLOB NOT NULL
);

-- The rowid is the last part of every index: these end in id without saying so.
CREATE INDEX holdfast_task_submitted ON holdfast_task (queue, partition, arrived) WHERE state = 1;
CREATE INDEX holdfast_task_waiting ON holdfast_task (queue, due_at) WHERE state = 0;
CREATE INDEX holdfast_task_processing ON holdfast_task (node) WHERE state = 2;
CREATE INDEX holdfast_task_error ON holdfast_task (state) WHERE state = 4;
CREATE INDEX holdfast_task_ordering ON holdfast_task (queue, ordering_key)
  WHERE ordering_key IS NOT NULL;
CREATE INDEX holdfast_task_ordering_busy ON holdfast_task (queue, ordering_key)
  WHERE ordering_key IS NOT NULL AND state = 2;

CREATE TABLE holdfast_archive (
  id INTEGER PRIMARY KEY,
  queue TEXT NOT NULL,
  partition INTEGER NOT NULL,
  kind TEXT NOT NULL,
  state INTEGER NOT NULL,
  version INTEGER NOT NULL,
  priority INTEGER NOT NULL,
  attempts INTEGER NOT NULL,
  deliveries INTEGER NOT NULL,
  enqueued_at INTEGER NOT NULL,
  due_at INTEGER,
  deadline_at INTEGER,
  finished_at INTEGER NOT NULL,
  node TEXT,
  fairness_key TEXT,
  ordering_key TEXT,
  error TEXT,
  metadata BLOB,
  result BLOB,
  payload BLOB NOT NULL
);

-- By state first: it serves counting as well as cleaning.
CREATE INDEX holdfast_archive_finished ON holdfast_archive (state, finished_at);

-- A key without `until` lives as long as its task.
CREATE TABLE holdfast_key (
  scope TEXT NOT NULL,
  name TEXT NOT NULL,
  task INTEGER NOT NULL,
  until INTEGER,
  PRIMARY KEY (scope, name)
) WITHOUT ROWID;

CREATE INDEX holdfast_key_task ON holdfast_key (task) WHERE until IS NULL;
CREATE INDEX holdfast_key_until ON holdfast_key (until) WHERE until IS NOT NULL;

CREATE TABLE holdfast_partition (
  queue TEXT NOT NULL,
  partition INTEGER NOT NULL,
  owner TEXT,
  epoch INTEGER NOT NULL DEFAULT 0,
  wish TEXT,
  position_arrived INTEGER NOT NULL DEFAULT 0,
  position_id INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (queue, partition)
) WITHOUT ROWID;

CREATE TABLE holdfast_mark (
  queue TEXT NOT NULL,
  partition INTEGER NOT NULL,
  priority INTEGER NOT NULL,
  kind TEXT NOT NULL,
  ack_pass INTEGER NOT NULL,
  ack_seq INTEGER NOT NULL,
  top_pass INTEGER NOT NULL,
  PRIMARY KEY (queue, partition, priority, kind)
) WITHOUT ROWID;

CREATE TABLE holdfast_backlog (
  queue TEXT NOT NULL,
  partition INTEGER NOT NULL,
  priority INTEGER NOT NULL,
  kind TEXT NOT NULL,
  pass INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  task INTEGER NOT NULL,
  version INTEGER NOT NULL,
  fairness_key TEXT,
  weight REAL NOT NULL,
  ordering_key TEXT,
  arrived INTEGER NOT NULL,
  PRIMARY KEY (queue, partition, priority, kind, pass, seq)
) WITHOUT ROWID;

INSERT INTO holdfast_meta (name, value) VALUES ('partitions', 8), ('schema', 1);

-- The counter of ids and arrivals exists from the first day.
INSERT INTO sqlite_sequence (name, seq) VALUES ('holdfast_task', 0);
