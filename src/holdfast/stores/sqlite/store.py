"""The store on one SQLite file: a library that needs no server.

The tables live in the user's own file, so that a task is enqueued in the user's own
transaction.  Four threads stand behind a store:

    writer     everything that changes the file, many operations a commit
    engine     the dispatcher's small reads
    search     people's long lists, which stop neither of the two
    leases     the second file, `<path>-leases`

`:memory:` is a store for tests: one connection, one thread, nothing kept.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from holdfast.clock import Clock
from holdfast.errors import ConfigurationError
from holdfast.stores.sqlite import connection, migrate
from holdfast.stores.sqlite.agenda import AgendaRole
from holdfast.stores.sqlite.backlogs import BacklogsRole
from holdfast.stores.sqlite.connection import SYNCHRONOUS, Connect
from holdfast.stores.sqlite.insight import InsightRole
from holdfast.stores.sqlite.leases import SAFE_FOR_SEVERAL, LeaseFile
from holdfast.stores.sqlite.members import LeasesRole
from holdfast.stores.sqlite.operations import Work
from holdfast.stores.sqlite.reader import Reader
from holdfast.stores.sqlite.rings import RingsRole
from holdfast.stores.sqlite.rulebook import RulebookRole
from holdfast.stores.sqlite.search import SearchRole
from holdfast.stores.sqlite.statements import run
from holdfast.stores.sqlite.tasks import TasksRole
from holdfast.stores.sqlite.timetable import TimetableRole
from holdfast.stores.sqlite.writer import Writer

PATIENCE_S = 5.0  # how long an enqueue waits for somebody's write transaction


class SQLiteStore(
    TasksRole,
    BacklogsRole,
    LeasesRole,
    AgendaRole,
    RulebookRole,
    RingsRole,
    TimetableRole,
    SearchRole,
    InsightRole,
):
    """Fulfils `holdfast.store.Store`.

    `open()` makes the file (readable by its owner only) and our tables when they are missing;
    a file with tables of a newer Holdfast is refused.  A store is opened once and closed once.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        clock: Clock,
        rng: Random,
        connect: Connect = sqlite3.connect,
        durability: str = "full",
        patience_s: float = PATIENCE_S,
    ) -> None:
        if durability not in SYNCHRONOUS:
            raise ConfigurationError(f"durability is one of {', '.join(SYNCHRONOUS)}")
        self._is_memory = str(path) == ":memory:"
        self._path = ":memory:" if self._is_memory else os.path.abspath(path)
        self._clock = clock
        self._rng = rng
        self._connect_raw = connect
        self._durability = durability
        self._patience_s = patience_s
        self._partitions = 0
        self._seen = self._rules_seen = None
        self._doorbell: sqlite3.Connection | None = None
        self._threads: tuple[Reader | Writer, ...] = ()

    @property
    def path(self) -> str:
        return self._path

    @property
    def partitions(self) -> int:
        """How many partitions a queue has; fixed when the tables were made."""
        assert self._partitions, "the store is not open"
        return self._partitions

    async def open(self) -> None:
        """Make what is missing, then check it: `SchemaTooNew` or `StoreUnavailable`.

        When it raises, nothing is left open.
        """
        if not self._is_memory:
            connection.make_file(self._path)
        self._writer = Writer(self._path, connect=self._connect, clock=self._clock)
        self._engine = self._reader("engine", small=True)
        self._search = self._reader("search", small=False)
        leases_path = ":memory:" if self._is_memory else f"{self._path}-leases"
        self._lease_file = LeaseFile(
            leases_path, connect=self._connect_raw, had_owners=self._had_owners
        )
        self._lease_thread = Reader("leases", leases_path, connect=_no_database, clock=self._clock)
        self._writer.start()
        # The writer ends last: whatever the others answer may still lead to a write.
        self._threads = (self._search, self._engine, self._lease_thread, self._writer)
        try:
            await self._prepare()
        except BaseException:
            await self.close()
            raise

    async def _prepare(self) -> None:
        if not self._is_memory:
            self._engine.start()
            self._search.start()
            self._doorbell = self._connect()
        if await self._read(lambda db, now: migrate.database_version(db)) == 0:
            await self.migrate()
        await self._read(lambda db, now: migrate.check(db))
        if self._doorbell is not None:
            self._check_writable(self._doorbell)
        ((self._partitions,),) = await self._read(
            lambda db, now: run(db, "meta", name="partitions")
        )
        self._lease_thread.start()
        await self.members()  # makes the lease file: its birth is the store's

    def _check_writable(self, db: sqlite3.Connection) -> None:
        """Raise when the file cannot be written to at all; somebody's lock is no reason."""
        db.execute("PRAGMA busy_timeout = 0").fetchall()
        try:
            db.execute("BEGIN IMMEDIATE")
            run(db, "touch")
        except sqlite3.Error as error:
            if not connection.is_busy(error):
                raise connection.unavailable(error, self._path) from error
        finally:
            if db.in_transaction:
                db.execute("ROLLBACK")
            db.execute(f"PRAGMA busy_timeout = {connection.BUSY_MS}").fetchall()

    async def close(self) -> None:
        """Finish what was accepted, then let go of every connection and thread.  Safe to repeat."""
        for thread in self._threads:
            await thread.stop()
        if self._threads:
            self._lease_file.close()
        if self._doorbell is not None:
            self._doorbell.close()
            self._doorbell = None

    async def migrate(self) -> int:
        """Bring the tables to this code's version; safe to run twice and at the same time.

        Also before `open`, which refuses tables that are too old.
        """
        if not self._threads:
            return await asyncio.to_thread(self._migrate_alone)
        version: int = await self._writer.run(
            lambda db, now: migrate.migrate(db), patience_s=self._patience_s
        )
        return version

    def _migrate_alone(self) -> int:
        if not self._is_memory:
            connection.make_file(self._path)
        db = self._connect()
        try:
            db.execute("BEGIN IMMEDIATE")
            version = migrate.migrate(db)
            db.execute("COMMIT")
            return version
        except sqlite3.Error as error:
            raise connection.unavailable(error, self._path) from error
        finally:
            db.close()

    def _version_alone(self) -> int:
        if not Path(self._path).exists():
            return 0
        db = self._connect()
        try:
            return migrate.database_version(db)
        except sqlite3.Error as error:
            raise connection.unavailable(error, self._path) from error
        finally:
            db.close()

    async def schema_status(self) -> tuple[int, int]:
        """The version that this code needs, and that of the file's tables; changes nothing."""
        if not self._threads:
            return migrate.code_version(), await asyncio.to_thread(self._version_alone)
        version = await self._read(lambda db, now: migrate.database_version(db))
        return migrate.code_version(), version

    def migration_sql(self) -> str:
        """All statements of `migrate`, to be read or run by a person."""
        return "\n".join(migrate.migrations().values())

    async def durability(self) -> dict[str, str]:
        """The settings on which durability rests, as the writer's connection reports them."""
        found: dict[str, str] = await self._write(lambda db, now: connection.settings(db))
        return found

    @property
    def is_safe_for_several(self) -> bool:
        """Whether several processes may write to the file with this library of SQLite."""
        return sqlite3.sqlite_version_info >= SAFE_FOR_SEVERAL

    @property
    def commits(self) -> int:
        """How often the writer has committed; many operations share one."""
        return self._writer.commits

    def data_version(self) -> int:
        """A number that changes when anybody has committed to the file: cheap enough to poll."""
        if self._doorbell is None:
            return self._writer.commits
        version: int = self._doorbell.execute("PRAGMA data_version").fetchone()[0]
        return version

    def same_file(self, given: Any) -> bool:
        """Whether this sqlite3 connection works on the store's file."""
        return not self._is_memory and connection.same_file(given, self._path)

    async def _write(
        self, work: Work, *, patience_s: float | None = None, is_small: bool = False
    ) -> Any:
        return await self._writer.run(work, patience_s=patience_s, is_small=is_small)

    async def _read(self, work: Work) -> Any:
        return await (self._writer if self._is_memory else self._engine).run(work)

    async def _browse(self, work: Work) -> Any:
        return await (self._writer if self._is_memory else self._search).run(work)

    async def _ask_leases(self, work: Callable[[LeaseFile, int], Any]) -> Any:
        return await self._lease_thread.run(lambda db, now: work(self._lease_file, now))

    def _connect(self) -> sqlite3.Connection:
        return connection.opened(self._path, self._connect_raw, durability=self._durability)

    def _reader(self, name: str, *, small: bool) -> Reader:
        return Reader(name, self._path, connect=self._connect, clock=self._clock, small=small)

    def _had_owners(self) -> bool:
        if self._is_memory:
            return False
        db = self._connect()
        try:
            return bool(run(db, "has_owners")[0][0])
        finally:
            db.close()


def _no_database() -> sqlite3.Connection:
    """The lease thread's work opens the lease file itself, and anew when it must."""
    return sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
