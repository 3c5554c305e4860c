"""Statements on connections of our own, beside the store: what a bare driver would do.

The drivers' connections come from the stores' packages, opened with the same settings as the
engine's, so that a comparison compares the code and not the settings.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from random import Random
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from holdfast.clock import Clock
from holdfast.errors import HoldfastError
from holdfast.sql.query import Style, load, quoted, rendered
from holdfast.task import NewTask, State

if TYPE_CHECKING:
    from holdfast.bench.ground import Place

PACKAGE = "holdfast.bench"
SERVERS_OWN = ("postgres", "template1")  # databases that most servers have


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Any]:
    """An asyncpg connection outside of every pool."""
    from holdfast.stores.postgres.connection import Database

    database = Database(url, schema="public", rng=Random(), connections_max=1, pooled=False)
    async with database.alone() as connection:
        yield connection


async def dropped_schema(url: str, schema: str) -> None:
    """Remove the schema and all that is in it.  Safe to repeat."""
    async with connected(url) as connection:
        await connection.execute(f"DROP SCHEMA IF EXISTS {quoted(schema)} CASCADE")


@asynccontextmanager
async def logged_statements(url: str) -> AsyncIterator[None]:
    """Every statement of connections that are made meanwhile is in the server's log."""
    database = quoted(urlsplit(url).path.strip("/"))
    async with connected(url) as connection:
        await connection.execute(f"ALTER DATABASE {database} SET log_statement = 'all'")
        try:
            yield
        finally:
            await connection.execute(f"ALTER DATABASE {database} RESET log_statement")


@asynccontextmanager
async def counted_transactions(url: str) -> AsyncIterator[Callable[[], Awaitable[int]]]:
    """A way to ask how many transactions the database has seen."""
    asked = (
        "SELECT xact_commit + xact_rollback FROM pg_stat_database "
        "WHERE datname = current_database()"
    )
    async with connected(url) as connection:
        yield lambda: connection.fetchval(asked)


# ── one insert after the other ────────────────────────────────────────────────────────────


async def inserts_s(place: Place, task: NewTask, count: int, *, clock: Clock) -> float:
    """How long `count` prepared autocommit inserts of the columns of an enqueue take.

    One more comes first and is not timed.  The rows are tasks like any other: a node runs them
    afterwards.
    """
    if place.is_sqlite:
        return _sqlite_inserts(place, task, count, clock)
    return await _postgres_inserts(place, task, count, clock)


async def _postgres_inserts(place: Place, task: NewTask, count: int, clock: Clock) -> float:
    from holdfast.stores.postgres.connection import ENGINE

    text, names = rendered(load(PACKAGE, "insert_postgres", place.schema), Style.DOLLAR)
    params = _params(task)
    values = [params[name] for name in names]
    async with connected(place.url) as connection:
        for name, value in ENGINE.items():
            await connection.execute("SELECT set_config($1, $2, false)", name, value)
        statement = await connection.prepare(text)
        await statement.fetch(*values)  # the first call plans
        started = clock.seconds()
        for _ in range(count):
            await statement.fetch(*values)
        return clock.seconds() - started


def _sqlite_inserts(place: Place, task: NewTask, count: int, clock: Clock) -> float:
    text, names = rendered(load(PACKAGE, "insert_sqlite"), Style.QMARK)
    params = _params(task)
    values = [params[name] for name in names]
    with _sqlite(place) as db:
        db.execute("PRAGMA wal_autocheckpoint = 1000").fetchall()  # as SQLite does by itself
        db.execute(text, values).fetchall()
        started = clock.seconds()
        for _ in range(count):
            # sqlite3 prepares the text once and keeps it.
            db.execute(text, values).fetchall()
        return clock.seconds() - started


def _params(task: NewTask) -> dict[str, Any]:
    return {
        "queue": task.queue,
        "partition": task.partition,
        "kind": task.kind,
        "priority": task.priority,
        "state": int(State.SUBMITTED),
        "fairness_key": task.fairness_key,
        "weight": task.weight,
        "ordering_key": task.ordering_key,
        "metadata": task.metadata,
        "payload": task.payload,
        "due_at": None,
        "now": 0,
    }


# ── what stops vacuum ─────────────────────────────────────────────────────────────────────


@asynccontextmanager
async def pinned_snapshot(place: Place) -> AsyncIterator[bool]:
    """A repeatable-read transaction, or SQLite's read transaction, that has read and stays open."""
    if place.is_sqlite:
        with _sqlite(place) as db:
            db.execute("BEGIN")
            db.execute("SELECT count(*) FROM holdfast_task").fetchall()
            yield True
            db.execute("ROLLBACK")
        return
    async with connected(place.url) as connection, _transaction(connection, "repeatable_read"):
        await connection.fetchval(f"SELECT count(*) FROM {quoted(place.schema)}.task")
        yield True


@asynccontextmanager
async def writing_elsewhere(place: Place, elsewhere: str | None) -> AsyncIterator[bool]:
    """An open transaction with a number of its own in another database of the server.

    False when there is none that we may connect to.
    """
    async with AsyncExitStack() as stack:
        connection: Any = None
        for url in [elsewhere] if elsewhere else _other_databases(place.url):
            with suppress(HoldfastError):
                connection = await stack.enter_async_context(connected(url))
                break
        if connection is not None:
            await stack.enter_async_context(_transaction(connection, "read_committed"))
            await connection.fetchval("SELECT pg_current_xact_id()::text")
        yield connection is not None


def _transaction(connection: Any, isolation: str) -> AbstractAsyncContextManager[None]:
    transaction: AbstractAsyncContextManager[None] = connection.transaction(isolation=isolation)
    return transaction


def _other_databases(url: str) -> list[str]:
    parts = urlsplit(url)
    ours = parts.path.removeprefix("/")
    return [parts._replace(path=f"/{name}").geturl() for name in SERVERS_OWN if name != ours]


async def wal_bytes(place: Place) -> int:
    """The bytes of log that the server has written so far; 0 on SQLite, which reuses its log."""
    if place.is_sqlite:
        return 0
    async with connected(place.url) as connection:
        found = await connection.fetchval("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn")
        return int(found)


@contextmanager
def _sqlite(place: Place) -> Iterator[sqlite3.Connection]:
    from holdfast.stores.sqlite.connection import opened

    db = opened(place.file, sqlite3.connect, durability="full")
    try:
        yield db
    finally:
        db.close()
