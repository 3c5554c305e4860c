-- Logs that nodes write in turns.  The latest record stands by itself: it outlives the rotation.
CREATE TABLE {schema}.ring (
    name text COLLATE "C" PRIMARY KEY,
    number bigint NOT NULL,
    writer text COLLATE "C" NOT NULL,
    body bytea NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50);

CREATE TABLE {schema}.ring_record (
    ring text COLLATE "C" NOT NULL,
    number bigint NOT NULL,
    writer text COLLATE "C" NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (ring, number)
);
