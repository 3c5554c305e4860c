-- Logs that nodes write in turns.  The latest record stands by itself: it outlives the rotation.
CREATE TABLE holdfast_ring (
  name TEXT PRIMARY KEY,
  number INTEGER NOT NULL,
  writer TEXT NOT NULL,
  body BLOB NOT NULL
) WITHOUT ROWID;

CREATE TABLE holdfast_ring_record (
  ring TEXT NOT NULL,
  number INTEGER NOT NULL,
  writer TEXT NOT NULL,
  body BLOB NOT NULL,
  PRIMARY KEY (ring, number)
) WITHOUT ROWID;
