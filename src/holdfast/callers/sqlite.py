"""A sqlite3 connection of the caller's, on the store's own file.

sqlite3 has no hook for a commit, and its connections cannot be referred to weakly; holding one
would hold its lock.  So only the ids are kept: whenever the file's `data_version` has changed, a
connection of our own is asked which of the tasks are there.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, TypeVar

from holdfast.callers.kit import SQLITE, Kit, checking, refuse_dialect
from holdfast.callers.scripts import OnlySync, play
from holdfast.errors import TransactionRefused
from holdfast.sql.query import Query, Script, Style, rendered
from holdfast.task import Trigger

T = TypeVar("T")

READ_FIRST = (
    "the transaction given as within= has read before it writes, and another connection has "
    "written since, so SQLite cannot let it write any more (database is locked). Begin the "
    "transaction with BEGIN IMMEDIATE, so that it holds the write lock from the start"
)
LOCKED = (
    "another connection kept its write transaction open for longer than this connection's "
    "timeout (database is locked). Begin with BEGIN IMMEDIATE, and keep transactions short"
)


class SQLiteCaller(OnlySync):
    """A `sqlite3.Connection`, on the thread that made it."""

    def __init__(self, connection: sqlite3.Connection, *, kit: Kit) -> None:
        refuse_dialect(kit, SQLITE, "a sqlite3 connection")
        if not connection.in_transaction and _is_autocommit(connection):
            raise TransactionRefused(
                "the sqlite3 connection given as within= has no open transaction; "
                'open one with connection.execute("BEGIN IMMEDIATE")'
            )
        self._connection = connection
        self._kit = kit

    def run_sync(self, script: Script[T]) -> T:
        play(checking(self._kit), self._execute)
        # Only the store checkpoints: before SQLite 3.51.3 a checkpoint beside a commit may
        # damage the file.
        self._connection.execute("PRAGMA wal_autocheckpoint = 0").fetchall()
        has_read = self._connection.in_transaction
        try:
            if not has_read:
                self._connection.execute("BEGIN IMMEDIATE")  # what Python would do, but in time
            return play(script, self._execute)
        except sqlite3.OperationalError as error:
            if is_locked(error):
                raise TransactionRefused(locked_because(error)) from error
            raise

    def after_commit(self, triggers: Sequence[Trigger]) -> None:
        if triggers:
            self._kit.watch.add(triggers)

    def _execute(self, query: Query, params: dict[str, Any]) -> list[Any]:
        cursor = self._connection.cursor()
        cursor.row_factory = None
        try:
            return cursor.execute(rendered(query, Style.NAMED)[0], params).fetchall()
        finally:
            cursor.close()


def is_locked(error: BaseException | None) -> bool:
    name = getattr(error, "sqlite_errorname", None) or ""
    return name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))


def locked_because(error: BaseException | None) -> str:
    """Why the write lock could not be had.  A snapshot that is too old fails without waiting."""
    name = getattr(error, "sqlite_errorname", None) or ""
    return READ_FIRST if name == "SQLITE_BUSY_SNAPSHOT" else f"{LOCKED}. Or {READ_FIRST}"


def _is_autocommit(connection: sqlite3.Connection) -> bool:
    """Whether nobody but the caller begins transactions."""
    mode = getattr(connection, "autocommit", None)  # Python 3.12; any other value: the old rules
    return mode is True or (mode is not False and connection.isolation_level is None)
