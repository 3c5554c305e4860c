"""The witness: triggers that write down each committed change of a task or of a lease.

They run in the transaction of the change, so a line stands there exactly when the change does.
Their times are the server's, which is this machine's.  On SQLite leases have a file of their own,
which has no witness.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any, NamedTuple

from holdfast.bench.bare import connected
from holdfast.bench.ground import Place
from holdfast.sql.query import quoted
from holdfast.task import State
from holdfast.verify.history import Line

# What happened, by the states before and after; PROCESSING to SUBMITTED has two reasons.
EVENTS = {
    (State.WAITING, State.SUBMITTED): "DUE",
    (State.SUBMITTED, State.PROCESSING): "GRABBED",
    (State.PROCESSING, State.DONE): "SUCCEEDED",
    (State.PROCESSING, State.WAITING): "RETRIED",
    (State.PROCESSING, State.SUBMITTED): "REPEATED",
    (State.PROCESSING, State.ERROR): "PARKED",
    (State.PROCESSING, State.FAILED): "GIVEN_UP",
    (State.ERROR, State.SUBMITTED): "RESUMED",
}

POSTGRES = """
CREATE TABLE {schema}.witness (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at double precision NOT NULL DEFAULT extract(epoch FROM clock_timestamp()),
    op text NOT NULL, task bigint, version integer, was smallint, state smallint, is_lost boolean,
    node text, queue text, kind text, ordering_key text, name text, until double precision
);
CREATE FUNCTION {schema}.witness_task() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO {schema}.witness (op, task, version, state, queue, kind, ordering_key)
        VALUES ('created', NEW.id, NEW.version, NEW.state, NEW.queue, NEW.kind, NEW.ordering_key);
    ELSIF TG_OP = 'DELETE' THEN
        INSERT INTO {schema}.witness (op, task, version, was, node)
        VALUES ('gone', OLD.id, OLD.version, OLD.state, OLD.node);
    ELSIF NEW.version <> OLD.version THEN
        INSERT INTO {schema}.witness (op, task, version, was, state, is_lost, node)
        VALUES ('moved', NEW.id, NEW.version, OLD.state, NEW.state, NEW.losses > OLD.losses,
            NEW.node);
    END IF;
    RETURN NULL;
END $$;
CREATE FUNCTION {schema}.witness_archive() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO {schema}.witness (op, task, version, state)
    VALUES ('kept', NEW.id, NEW.version, NEW.state);
    RETURN NULL;
END $$;
CREATE FUNCTION {schema}.witness_key() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO {schema}.witness (op, task, name) VALUES ('named', NEW.task, NEW.name);
    RETURN NULL;
END $$;
CREATE FUNCTION {schema}.witness_node() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO {schema}.witness (op, node, until)
    VALUES ('leased', NEW.id, extract(epoch FROM NEW.until));
    RETURN NULL;
END $$;
CREATE TRIGGER witness AFTER INSERT OR UPDATE OR DELETE ON {schema}.task
    FOR EACH ROW EXECUTE FUNCTION {schema}.witness_task();
CREATE TRIGGER witness AFTER INSERT ON {schema}.archive
    FOR EACH ROW EXECUTE FUNCTION {schema}.witness_archive();
CREATE TRIGGER witness AFTER INSERT ON {schema}.key
    FOR EACH ROW EXECUTE FUNCTION {schema}.witness_key();
CREATE TRIGGER witness AFTER INSERT OR UPDATE OF until ON {schema}.node
    FOR EACH ROW EXECUTE FUNCTION {schema}.witness_node();
"""

NOW = "(julianday('now') - 2440587.5) * 86400.0"
SQLITE = f"""
CREATE TABLE witness (
  seq INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL DEFAULT ({NOW}),
  op TEXT NOT NULL, task INTEGER, version INTEGER, was INTEGER, state INTEGER, is_lost INTEGER,
  node TEXT, queue TEXT, kind TEXT, ordering_key TEXT, name TEXT, until REAL
);
CREATE TRIGGER witness_created AFTER INSERT ON holdfast_task BEGIN
  INSERT INTO witness (op, task, version, state, queue, kind, ordering_key)
  VALUES ('created', NEW.id, NEW.version, NEW.state, NEW.queue, NEW.kind, NEW.ordering_key);
END;
CREATE TRIGGER witness_moved AFTER UPDATE ON holdfast_task WHEN NEW.version <> OLD.version BEGIN
  INSERT INTO witness (op, task, version, was, state, is_lost, node)
  VALUES ('moved', NEW.id, NEW.version, OLD.state, NEW.state, NEW.losses > OLD.losses, NEW.node);
END;
CREATE TRIGGER witness_gone AFTER DELETE ON holdfast_task BEGIN
  INSERT INTO witness (op, task, version, was, node)
  VALUES ('gone', OLD.id, OLD.version, OLD.state, OLD.node);
END;
CREATE TRIGGER witness_kept AFTER INSERT ON holdfast_archive BEGIN
  INSERT INTO witness (op, task, version, state) VALUES ('kept', NEW.id, NEW.version, NEW.state);
END;
CREATE TRIGGER witness_named AFTER INSERT ON holdfast_key BEGIN
  INSERT INTO witness (op, task, name) VALUES ('named', NEW.task, NEW.name);
END;
"""
COLUMNS = "at, op, task, version, was, state, is_lost, node, queue, kind, ordering_key, name, until"


class Seen(NamedTuple):
    """A row of the witness."""

    at: float
    op: str
    task: int | None
    version: int | None
    was: int | None
    state: int | None
    is_lost: bool | None
    node: str | None
    queue: str | None
    kind: str | None
    ordering_key: str | None
    name: str | None
    until: float | None


async def install(place: Place) -> None:
    """Have everything written down from now on; the tables must be there."""
    if place.is_sqlite:
        with closing(sqlite3.connect(place.file)) as db:
            db.executescript(SQLITE)
        return
    async with connected(place.url) as connection:
        await connection.execute(POSTGRES.format(schema=quoted(place.schema)))


async def seen(place: Place) -> list[Seen]:
    """Everything so far, in the order of its writing."""
    if place.is_sqlite:
        with closing(sqlite3.connect(place.file)) as db:
            rows: Iterable[Sequence[Any]] = db.execute(
                f"SELECT {COLUMNS} FROM witness ORDER BY seq"
            ).fetchall()
    else:
        async with connected(place.url) as connection:
            table = f"{quoted(place.schema)}.witness"
            rows = await connection.fetch(f"SELECT {COLUMNS} FROM {table} ORDER BY seq")
    return [Seen(*row) for row in rows]


def told(rows: Sequence[Seen]) -> Iterator[Line]:
    """The rows as lines of a history."""
    names = {row.task: row.name for row in rows if row.op == "named"}
    left = {(row.task, row.version): row for row in rows if row.op == "gone"}
    for row in rows:
        match row.op:
            case "created":
                yield _created(row, names.get(row.task))
            case "moved":
                yield _moved(row, row.was, row.node)
            case "kept":
                # It left the hot table in the same transaction, one version before.
                assert row.version is not None, "the archive has versions"
                gone = left.get((row.task, row.version - 1))
                yield _moved(row, gone and gone.was, gone and gone.node)
            case "leased":
                yield {"t": row.at, "op": "leased", "node": row.node, "until": row.until}


def _created(row: Seen, name: str | None) -> Line:
    assert row.state is not None, "a task has a state"
    return {
        "t": row.at,
        "op": "created",
        "task": row.task,
        "version": row.version,
        "state": State(row.state).name,
        "request": name,
        "kind": row.kind,
        "queue": row.queue,
        "ordering_key": row.ordering_key,
    }


def _moved(row: Seen, was: int | None, node: str | None) -> Line:
    assert row.state is not None, "a task has a state"
    before, after = None if was is None else State(was), State(row.state)
    event = EVENTS.get((before, after), after.name) if before is not None else after.name
    return {
        "t": row.at,
        "op": "moved",
        "task": row.task,
        "version": row.version,
        "event": "LEASE_LOST" if row.is_lost else event,
        "from": before.name if before is not None else None,
        "to": after.name,
        "node": node,
    }
