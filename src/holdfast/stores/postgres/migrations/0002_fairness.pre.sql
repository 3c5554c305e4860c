-- Lanes: a key that may not go on waits in a line of its own within its column.  '' is the line
-- of everybody else, which is all that older nodes know.
ALTER TABLE {schema}.backlog ADD COLUMN lane text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE {schema}.backlog DROP CONSTRAINT backlog_pkey;
ALTER TABLE {schema}.backlog ADD PRIMARY KEY (queue, partition, priority, kind, lane, pass, seq);

-- The last passes of a column's busiest keys, as JSON: [[key, pass], …].
CREATE TABLE {schema}.counter (
    queue text COLLATE "C" NOT NULL,
    partition smallint NOT NULL,
    priority smallint NOT NULL,
    kind text COLLATE "C" NOT NULL,
    passes text NOT NULL,
    PRIMARY KEY (queue, partition, priority, kind)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50);
