-- Lanes: a key that may not go on waits in a line of its own within its column.  '' is the line
-- of everybody else.
ALTER TABLE holdfast_backlog RENAME TO holdfast_backlog_1;

CREATE TABLE holdfast_backlog (
  queue TEXT NOT NULL,
  partition INTEGER NOT NULL,
  priority INTEGER NOT NULL,
  kind TEXT NOT NULL,
  lane TEXT NOT NULL,
  pass INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  task INTEGER NOT NULL,
  version INTEGER NOT NULL,
  fairness_key TEXT,
  weight REAL NOT NULL,
  ordering_key TEXT,
  arrived INTEGER NOT NULL,
  PRIMARY KEY (queue, partition, priority, kind, lane, pass, seq)
) WITHOUT ROWID;

INSERT INTO holdfast_backlog
SELECT queue, partition, priority, kind, '', pass, seq, task, version, fairness_key, weight,
  ordering_key, arrived
FROM holdfast_backlog_1;

DROP TABLE holdfast_backlog_1;

-- The last passes of a column's busiest keys, as JSON: [[key, pass], …].
CREATE TABLE holdfast_counter (
  queue TEXT NOT NULL,
  partition INTEGER NOT NULL,
  priority INTEGER NOT NULL,
  kind TEXT NOT NULL,
  passes TEXT NOT NULL,
  PRIMARY KEY (queue, partition, priority, kind)
) WITHOUT ROWID;
