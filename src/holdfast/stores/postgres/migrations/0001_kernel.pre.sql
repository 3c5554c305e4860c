-- Everything a task needs.  Names are always written with their schema; no statement relies on
-- search_path, so that any connection may run it.

CREATE TABLE {schema}.meta (
    name text COLLATE "C" PRIMARY KEY,
    value text NOT NULL
);
INSERT INTO {schema}.meta (name, value) VALUES ('partitions', '32');

-- The one clock of every decision.  Tests shift it by a setting; the statement's time instead of
-- clock_timestamp() keeps the function stable, so that it is inlined and may bound an index scan.
CREATE FUNCTION {schema}.now() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT statement_timestamp()
        + coalesce(nullif(current_setting('holdfast.clock_shift', true), ''), '0')::interval
$$;

CREATE SEQUENCE {schema}.task_id;

-- Columns of fixed width first: no padding.  State stands in index predicates, so no move is a
-- heap-only update; that is why there are few indexes.
CREATE TABLE {schema}.task (
    id bigint PRIMARY KEY DEFAULT nextval('{schema}.task_id'),
    arrived xid8,
    enqueued_at timestamptz NOT NULL,
    due_at timestamptz,
    deadline_at timestamptz,
    version integer NOT NULL DEFAULT 1,
    attempts integer NOT NULL DEFAULT 0,
    deliveries integer NOT NULL DEFAULT 0,
    losses integer NOT NULL DEFAULT 0,
    weight real NOT NULL DEFAULT 1,
    partition smallint NOT NULL,
    priority smallint NOT NULL,
    state smallint NOT NULL,
    queue text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    node text COLLATE "C",
    fairness_key text COLLATE "C",
    ordering_key text COLLATE "C",
    error text COLLATE "C",
    metadata bytea,
    payload bytea NOT NULL
) WITH (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 200,
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_analyze_threshold = 2000,
    autovacuum_vacuum_cost_limit = 5000,
    autovacuum_vacuum_cost_delay = 0,
    vacuum_truncate = off
);
-- Payloads are compressed already: trying again costs time and gains nothing.
ALTER TABLE {schema}.task ALTER COLUMN payload SET STORAGE EXTERNAL;
ALTER TABLE {schema}.task ALTER COLUMN metadata SET STORAGE EXTERNAL;

CREATE INDEX task_submitted ON {schema}.task (queue, partition, arrived, id) WHERE state = 1;
CREATE INDEX task_waiting ON {schema}.task (queue, partition, due_at) WHERE state = 0;
CREATE INDEX task_processing ON {schema}.task (node) WHERE state = 2;
CREATE INDEX task_error ON {schema}.task (queue, id) WHERE state = 4;
CREATE INDEX task_ordering ON {schema}.task (queue, ordering_key, id)
    WHERE ordering_key IS NOT NULL;
-- Whether a sibling runs is asked for every grab of an ordering key; without this index the
-- answer would cost the length of the key's line.
CREATE INDEX task_ordering_busy ON {schema}.task (queue, ordering_key)
    WHERE ordering_key IS NOT NULL AND state = 2;

-- Finished tasks, one table a day, so that cleaning is dropping a table.  No default partition:
-- it would forbid DETACH CONCURRENTLY.
CREATE TABLE {schema}.archive (
    id bigint NOT NULL,
    enqueued_at timestamptz NOT NULL,
    finished_at timestamptz NOT NULL,
    version integer NOT NULL,
    attempts integer NOT NULL,
    deliveries integer NOT NULL,
    partition smallint NOT NULL,
    priority smallint NOT NULL,
    state smallint NOT NULL,
    queue text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    node text COLLATE "C",
    fairness_key text COLLATE "C",
    ordering_key text COLLATE "C",
    error text COLLATE "C",
    metadata bytea,
    payload bytea NOT NULL,
    result bytea
) PARTITION BY RANGE (finished_at);
ALTER TABLE {schema}.archive ALTER COLUMN payload SET STORAGE EXTERNAL;
ALTER TABLE {schema}.archive ALTER COLUMN metadata SET STORAGE EXTERNAL;
ALTER TABLE {schema}.archive ALTER COLUMN result SET STORAGE EXTERNAL;
CREATE INDEX archive_id ON {schema}.archive (id);

-- Makes the day tables from :first on, those that are missing, and answers how many it made.
-- Each is created apart and attached, which locks out no settle.  The advisory lock lets two
-- callers make the same day one after the other; it ends with the transaction.
CREATE FUNCTION {schema}.make_archive_days(first date, days integer) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    day date;
    made integer := 0;
    child text;
BEGIN
    FOR day IN SELECT first + n FROM generate_series(0, days - 1) AS n LOOP
        child := 'archive_' || to_char(day, 'YYYYMMDD');
        CONTINUE WHEN EXISTS (
            SELECT FROM pg_catalog.pg_inherits i
            JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
            WHERE i.inhparent = '{schema}.archive'::regclass
                AND c.relname = child AND NOT i.inhdetachpending
        );
        PERFORM pg_advisory_xact_lock(hashtextextended('{schema}.archive', 0));
        CONTINUE WHEN to_regclass('{schema}.' || child) IS NOT NULL;
        EXECUTE 'CREATE TABLE {schema}.' || child
            || ' (LIKE {schema}.archive INCLUDING ALL)'
            || ' WITH (autovacuum_vacuum_insert_scale_factor = 0.2)';
        EXECUTE 'ALTER TABLE {schema}.archive ATTACH PARTITION {schema}.' || child
            || ' FOR VALUES FROM (' || quote_literal(day::text || ' 00:00:00+00')
            || ') TO (' || quote_literal((day + 1)::text || ' 00:00:00+00') || ')';
        made := made + 1;
    END LOOP;
    RETURN made;
END
$$;

-- What makes a task unique.  Only tasks with a key touch this table.  Without `until` the key
-- lives as long as its task is kept.
CREATE TABLE {schema}.key (
    scope text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    task bigint NOT NULL,
    until timestamptz,
    PRIMARY KEY (scope, name)
) WITH (fillfactor = 90);
CREATE INDEX key_task ON {schema}.key (task) WHERE until IS NULL;
CREATE INDEX key_until ON {schema}.key (until) WHERE until IS NOT NULL;

-- Who owns a partition.  Only owner and epoch are here: whatever changes with each batch is
-- appended to `mark`, because a row updated once a batch slows down while vacuum cannot run.
CREATE TABLE {schema}.partition (
    queue text COLLATE "C" NOT NULL,
    partition smallint NOT NULL,
    epoch bigint NOT NULL DEFAULT 0,
    owner text COLLATE "C",
    wish text COLLATE "C",
    PRIMARY KEY (queue, partition)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50);

CREATE TABLE {schema}.backlog (
    queue text COLLATE "C" NOT NULL,
    partition smallint NOT NULL,
    priority smallint NOT NULL,
    kind text COLLATE "C" NOT NULL,
    pass bigint NOT NULL,
    seq bigint NOT NULL,
    task bigint NOT NULL,
    arrived bigint NOT NULL,
    version integer NOT NULL,
    weight real NOT NULL,
    fairness_key text COLLATE "C",
    ordering_key text COLLATE "C",
    PRIMARY KEY (queue, partition, priority, kind, pass, seq)
) WITH (
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 200,
    autovacuum_vacuum_cost_limit = 5000,
    autovacuum_vacuum_cost_delay = 0,
    vacuum_truncate = off
);

-- Ack levels and virtual times of columns, and with priority -1 the position of the partition
-- (pass = arrived, seq = id).  The row with the highest number of a column counts.
CREATE SEQUENCE {schema}.mark_number;
CREATE TABLE {schema}.mark (
    queue text COLLATE "C" NOT NULL,
    partition smallint NOT NULL,
    priority smallint NOT NULL,
    kind text COLLATE "C" NOT NULL,
    number bigint NOT NULL DEFAULT nextval('{schema}.mark_number'),
    pass bigint NOT NULL,
    seq bigint NOT NULL,
    top_pass bigint NOT NULL,
    PRIMARY KEY (queue, partition, priority, kind, number)
) WITH (
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 200,
    autovacuum_vacuum_cost_delay = 0,
    vacuum_truncate = off
);

CREATE TABLE {schema}.node (
    id text COLLATE "C" PRIMARY KEY,
    until timestamptz NOT NULL,
    lease interval NOT NULL,
    queues text[] NOT NULL,
    kinds text[] NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50);

-- Nobody could renew a lease while the server was down: that time is not held against the nodes.
-- Else the first of them to come back would take from the others what they are still running.
CREATE FUNCTION {schema}.is_alive(until timestamptz, lease interval) RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT greatest(until, pg_postmaster_start_time() + lease) > {schema}.now()
$$;
