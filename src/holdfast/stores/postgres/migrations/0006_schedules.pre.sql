-- What fires when: one row for each schedule.  Without `next_at` it has ended.
CREATE TABLE {schema}.schedule (
    name text COLLATE "C" PRIMARY KEY,
    version bigint NOT NULL,
    next_at timestamptz,
    last_at timestamptz,
    missed bigint NOT NULL,
    weight real NOT NULL,
    priority smallint NOT NULL,
    partition smallint,
    paused boolean NOT NULL,
    source text NOT NULL,
    timing text NOT NULL,
    kind text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    fairness_key text COLLATE "C",
    ordering_key text COLLATE "C",
    metadata bytea,
    payload bytea NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50);
CREATE INDEX schedule_due ON {schema}.schedule (next_at) WHERE NOT paused;
