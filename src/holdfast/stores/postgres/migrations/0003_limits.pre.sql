-- What was set at run time.  One version for all of it: nodes look whether it has changed.
CREATE TABLE {schema}.rule_version (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    version bigint NOT NULL
);
INSERT INTO {schema}.rule_version (version) VALUES (0);

CREATE TABLE {schema}.limit_rule (
    queue text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    concurrency integer,
    rate double precision,
    kind text COLLATE "C",
    key text COLLATE "C",
    burst double precision NOT NULL,
    local boolean NOT NULL,
    PRIMARY KEY (queue, name)
);

CREATE TABLE {schema}.weight_rule (
    queue text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    weight double precision NOT NULL,
    PRIMARY KEY (queue, key)
);

-- How the keys of a queue are charged, where it is not by count.
CREATE TABLE {schema}.fairness_rule (
    queue text COLLATE "C" PRIMARY KEY,
    mode text NOT NULL
);

-- A node's share of a concurrency.  `ended`: the node is dead; its tasks are being resumed.
CREATE TABLE {schema}.share (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    node text COLLATE "C" NOT NULL,
    held integer NOT NULL,
    wanted integer NOT NULL,
    ended boolean NOT NULL DEFAULT false,
    UNIQUE (queue, name, key, node)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50);
CREATE INDEX share_node ON {schema}.share (node);

-- The tokens of a rate.
CREATE TABLE {schema}.bucket (
    queue text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    tokens double precision NOT NULL,
    at timestamptz NOT NULL,
    PRIMARY KEY (queue, name, key)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50);
