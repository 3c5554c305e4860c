-- What fires when: one row for each schedule.  Without `next_at` it has ended.
CREATE TABLE holdfast_schedule (
  name TEXT PRIMARY KEY,
  version INTEGER NOT NULL,
  next_at INTEGER,
  last_at INTEGER,
  missed INTEGER NOT NULL,
  weight REAL NOT NULL,
  priority INTEGER NOT NULL,
  partition INTEGER,
  paused INTEGER NOT NULL,
  source TEXT NOT NULL,
  timing TEXT NOT NULL,
  kind TEXT NOT NULL,
  queue TEXT NOT NULL,
  fairness_key TEXT,
  ordering_key TEXT,
  metadata BLOB,
  payload BLOB NOT NULL
) WITHOUT ROWID;

CREATE INDEX holdfast_schedule_due ON holdfast_schedule (next_at) WHERE paused = 0;
