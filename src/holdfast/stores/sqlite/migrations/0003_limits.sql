-- What was set at run time.  One version for all of it: nodes look whether it has changed.
INSERT INTO holdfast_meta (name, value) VALUES ('rules', 0);

CREATE TABLE holdfast_limit_rule (
  queue TEXT NOT NULL,
  name TEXT NOT NULL,
  concurrency INTEGER,
  rate REAL,
  kind TEXT,
  key TEXT,
  burst REAL NOT NULL,
  local INTEGER NOT NULL,
  PRIMARY KEY (queue, name)
) WITHOUT ROWID;

CREATE TABLE holdfast_weight_rule (
  queue TEXT NOT NULL,
  key TEXT NOT NULL,
  weight REAL NOT NULL,
  PRIMARY KEY (queue, key)
) WITHOUT ROWID;

-- How the keys of a queue are charged, where it is not by count.
CREATE TABLE holdfast_fairness_rule (
  queue TEXT PRIMARY KEY,
  mode TEXT NOT NULL
) WITHOUT ROWID;

-- A node's share of a concurrency.  `ended`: the node is dead; its tasks are being resumed.
CREATE TABLE holdfast_share (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  queue TEXT NOT NULL,
  name TEXT NOT NULL,
  key TEXT NOT NULL,
  node TEXT NOT NULL,
  held INTEGER NOT NULL,
  wanted INTEGER NOT NULL,
  ended INTEGER NOT NULL DEFAULT 0,
  UNIQUE (queue, name, key, node)
);
CREATE INDEX holdfast_share_node ON holdfast_share (node);

-- The tokens of a rate.
CREATE TABLE holdfast_bucket (
  queue TEXT NOT NULL,
  name TEXT NOT NULL,
  key TEXT NOT NULL,
  tokens REAL NOT NULL,
  at INTEGER NOT NULL,
  PRIMARY KEY (queue, name, key)
) WITHOUT ROWID;
