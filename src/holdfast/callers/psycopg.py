"""A psycopg connection of the caller's, sync or async.

psycopg has no hook for the end of a transaction, but it knows its state without asking the
server.  So the triggers are held until the connection says that the transaction is over, and the
store then says which of its tasks are there: one statement, also for rolled-back savepoints.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar
from weakref import ref

from holdfast.callers.kit import POSTGRES, Kit, checking, refuse_dialect
from holdfast.callers.scripts import OnlyAsync, OnlySync, play, play_async
from holdfast.callers.watch import Phase, Probe
from holdfast.errors import TransactionRefused
from holdfast.sql.query import Query, Script, Style, rendered
from holdfast.task import Trigger

T = TypeVar("T")

_IDLE, _ACTIVE, _IN_TRANSACTION, _IN_ERROR = 0, 1, 2, 3  # libpq's numbers


def refuse_autocommit(connection: Any) -> None:
    """Without a transaction the task would be committed before the caller's own writes."""
    if connection.autocommit and connection.info.transaction_status not in (
        _ACTIVE,
        _IN_TRANSACTION,
        _IN_ERROR,
    ):
        raise TransactionRefused(
            "the psycopg connection given as within= is in autocommit mode and has no open "
            "transaction; open one with `with connection.transaction():`"
        )


def probe_of(connection: Any) -> Probe:
    """Asks the connection, without keeping it alive: dropping it is how some people roll back."""
    reference = ref(connection)

    def probe() -> Phase:
        found = reference()
        if found is None or found.closed:
            return Phase.GONE
        status = int(found.info.transaction_status)
        if status == _IDLE:
            return Phase.ENDED
        return Phase.OPEN if status in (_ACTIVE, _IN_TRANSACTION, _IN_ERROR) else Phase.GONE

    return probe


class _Psycopg:
    def __init__(self, connection: Any, *, kit: Kit) -> None:
        refuse_dialect(kit, POSTGRES, "a psycopg connection")
        refuse_autocommit(connection)
        self._connection = connection
        self._kit = kit

    def after_commit(self, triggers: Sequence[Trigger]) -> None:
        if triggers:
            self._kit.watch.add(triggers, probe=probe_of(self._connection))


class PsycopgCaller(OnlySync, _Psycopg):
    """A `psycopg.Connection`, on the thread that uses it."""

    def run_sync(self, script: Script[T]) -> T:
        if self._connection not in self._kit.checked:
            play(checking(self._kit), self._execute)
            self._kit.checked[self._connection] = True
        return play(script, self._execute)

    def _execute(self, query: Query, params: dict[str, Any]) -> list[Any]:
        from psycopg import Cursor
        from psycopg.rows import tuple_row

        # A plain cursor: the connection's own factory may return dicts, or write $1.
        with Cursor(self._connection, row_factory=tuple_row) as cursor:
            cursor.execute(rendered(query, Style.PYFORMAT)[0].encode(), params)
            return cursor.fetchall() if cursor.description else []


class AsyncPsycopgCaller(OnlyAsync, _Psycopg):
    """A `psycopg.AsyncConnection`."""

    async def run(self, script: Script[T]) -> T:
        if self._connection not in self._kit.checked:
            await play_async(checking(self._kit), self._execute)
            self._kit.checked[self._connection] = True
        return await play_async(script, self._execute)

    async def _execute(self, query: Query, params: dict[str, Any]) -> list[Any]:
        from psycopg import AsyncCursor
        from psycopg.rows import tuple_row

        async with AsyncCursor(self._connection, row_factory=tuple_row) as cursor:
            await cursor.execute(rendered(query, Style.PYFORMAT)[0].encode(), params)
            return await cursor.fetchall() if cursor.description else []
