"""One stored column, three times: as a plain model, on SQLite and on PostgreSQL.

A history asks for store calls by yielding them, so that the same history can be played on a
store that answers at once and on one that has to be awaited.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

from holdfast.ids import NodeId
from holdfast.store import (
    START,
    ZERO,
    Column,
    Entry,
    Level,
    LevelCursor,
    Loaded,
    Mark,
    Record,
    Tail,
)
from holdfast.stores.postgres.store import PostgresStore
from holdfast.stores.sqlite import lines
from holdfast.stores.sqlite.migrate import migrate

PARTITION = 0
COLUMN = Column(5, "mail")
EVERYTHING = LevelCursor(PARTITION, COLUMN, ZERO, 1_000_000)

Call = tuple[Any, ...]  # the name of a verb, then what it is given
History = Generator[Call, Any, None]


class ModelColumn:
    """The column and its lanes as the contract of the store describes them."""

    def __init__(self) -> None:
        self._rows: dict[Column, dict[Level, Entry]] = {COLUMN: {}}
        self._mark: Mark | None = None
        self._position = START
        self._counters: dict[str | None, int] = {}
        self._epoch = 0

    def claim(self, epoch: int, node: NodeId) -> int | None:
        """Raise the epoch that was seen; None: somebody else was faster."""
        if epoch != self._epoch:
            return None
        self._epoch += 1
        return self._epoch

    def load(self) -> Loaded:
        mark = self._mark
        tails = {}
        for column, rows in self._rows.items():
            above = [x for x in rows if column.lane or mark is None or x > mark.ack_level]
            if above:
                tails[column] = Tail(max(above), rows[max(above)].trigger.fairness_key)
        marks = {} if mark is None else {COLUMN: mark}
        counters = {COLUMN: self._counters} if self._counters else {}
        return Loaded(PARTITION, self._position, marks, tails, [], counters)

    def record(self, record: Record) -> bool:
        """Whether the record counts: it does while its epoch is the partition's."""
        if record.epoch != self._epoch:
            return False
        for entry in record.entries:
            rows = self._rows.setdefault(COLUMN._replace(lane=entry.lane), {})
            rows.setdefault(entry.level, entry)
        self._mark = record.marks.get(COLUMN, self._mark)
        self._position = record.position or self._position
        for column, (above, to) in record.trims.items():
            rows = self._rows.get(column, {})
            self._rows[column] = {x: row for x, row in rows.items() if not above < x <= to}
        self._counters = dict(record.counters.get(COLUMN, self._counters))
        return True

    def levels(self, cursor: LevelCursor) -> list[Entry]:
        rows = self._rows.get(cursor.column, {})
        found = sorted(level for level in rows if level > cursor.level)
        return [rows[level] for level in found[: cursor.limit]]


def new_database() -> sqlite3.Connection:
    """An empty, migrated database in memory."""
    db = sqlite3.connect(":memory:", isolation_level=None)
    with _transaction(db):
        migrate(db)
    return db


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


class SQLiteColumn:
    """The column on SQLite, one transaction a call; many histories share a database."""

    def __init__(self, db: sqlite3.Connection, queue: str) -> None:
        self._db = db
        self._queue = queue
        with _transaction(db):
            for table in ("backlog", "mark", "counter", "partition"):
                db.execute(f"DELETE FROM holdfast_{table}")
            lines.make_partitions(db, queue, 1)

    def claim(self, epoch: int, node: NodeId) -> int | None:
        with _transaction(self._db):
            taken = lines.claim(
                self._db, self._queue, {PARTITION: epoch}, node=node, is_alive=lambda _: False
            )
        return taken.get(PARTITION)

    def load(self) -> Loaded:
        with _transaction(self._db):
            return lines.load(self._db, self._queue, [PARTITION])[0]

    def record(self, record: Record) -> bool:
        with _transaction(self._db):
            return not lines.record(self._db, self._queue, [record])

    def levels(self, cursor: LevelCursor) -> list[Entry]:
        with _transaction(self._db):
            return lines.levels(self._db, self._queue, [cursor])[0]


class PostgresColumn:
    """The column on PostgreSQL; each history has a queue of its own."""

    def __init__(self, store: PostgresStore, queue: str) -> None:
        self._store = store
        self._queue = queue

    async def open(self) -> None:
        """Make the rows of the queue's partitions."""
        await self._store.holdings(self._queue)

    async def claim(self, epoch: int, node: NodeId) -> int | None:
        taken = await self._store.claim(self._queue, {PARTITION: epoch}, node=node)
        return taken.get(PARTITION)

    async def load(self) -> Loaded:
        return (await self._store.load(self._queue, [PARTITION]))[0]

    async def record(self, record: Record) -> bool:
        return not await self._store.record(self._queue, [record])

    async def levels(self, cursor: LevelCursor) -> list[Entry]:
        return (await self._store.levels(self._queue, [cursor]))[0]


def drive(history: History, column: ModelColumn | SQLiteColumn) -> None:
    """Play a history on a store that answers at once."""
    try:
        verb, *given = next(history)
        while True:
            verb, *given = history.send(getattr(column, verb)(*given))
    except StopIteration:
        return


async def drive_awaiting(history: History, column: PostgresColumn) -> None:
    """Play a history on a store that has to be awaited."""
    try:
        verb, *given = next(history)
        while True:
            verb, *given = history.send(await getattr(column, verb)(*given))
    except StopIteration:
        return
