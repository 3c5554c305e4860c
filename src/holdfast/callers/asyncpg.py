"""An asyncpg connection of the caller's.

asyncpg tells its query loggers of every COMMIT and ROLLBACK.  A logger is added with the first
task of a transaction and removed at its end.  When it cannot be sure that everything was kept
(a savepoint was rolled back, a statement failed, the connection was lost), the store is asked.

Loggers do not hear of statements that were prepared by hand, of cursors and of COPY.  When one of
those fails, the error is caught and the broken transaction is committed all the same, a trigger
goes out for a task that is not there; whoever hears it drops it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from holdfast.callers.kit import POSTGRES, Kit, checking, refuse_dialect
from holdfast.callers.scripts import OnlyAsync, play_async
from holdfast.callers.watch import Phase, Probe, has_ended
from holdfast.errors import TransactionRefused
from holdfast.sql.query import Query, Script, Style, arguments, rendered
from holdfast.task import Trigger

T = TypeVar("T")


class AsyncpgCaller(OnlyAsync):
    """Inside `async with connection.transaction()`, on a connection or one taken from a pool."""

    def __init__(self, connection: Any, *, kit: Kit) -> None:
        refuse_dialect(kit, POSTGRES, "an asyncpg connection")
        if not connection.is_in_transaction():
            raise TransactionRefused(
                "the asyncpg connection given as within= has no open transaction; "
                "open one with `async with connection.transaction():`"
            )
        # A pool's proxy forgets its connection on release, which may be before we hear of the
        # commit; so we keep to the connection behind it.
        self._connection = getattr(connection, "_con", None) or connection
        self._kit = kit

    async def run(self, script: Script[T]) -> T:
        if self._connection not in self._kit.checked:
            await play_async(checking(self._kit), self._execute)
            self._kit.checked[self._connection] = True
        return await play_async(script, self._execute)

    def after_commit(self, triggers: Sequence[Trigger]) -> None:
        hook = self._kit.hooks.get(self._connection)
        if hook is None:
            hook = self._kit.hooks[self._connection] = Hook(self._connection, self._kit)
        hook.triggers.extend(triggers)

    async def _execute(self, query: Query, params: dict[str, Any]) -> list[Any]:
        text, names = rendered(query, Style.DOLLAR)
        rows: list[Any] = await self._connection.fetch(text, *arguments(names, params))
        return rows


class Hook:
    """Sees the end of one transaction, sends or drops its triggers, and is gone."""

    def __init__(self, connection: Any, kit: Kit) -> None:
        self.triggers: list[Trigger] = []
        self._kit = kit
        self._in_doubt = False
        connection.add_query_logger(self._logged)
        connection.add_termination_listener(self._terminated)
        self._is_open = connection.is_in_transaction
        self._remove = (connection.remove_query_logger, connection.remove_termination_listener)
        self._connection = connection

    def _logged(self, record: Any) -> None:
        words = record.query.replace(";", " ").upper().split(maxsplit=3)[:3]
        if record.exception is not None:
            # The transaction may be broken, and then even a COMMIT rolls it back.
            self._in_doubt = True
        if words[:1] in (["COMMIT"], ["END"]):
            self._end(has_ended if record.exception is None else None)
        elif words[:1] in (["ROLLBACK"], ["ABORT"]) and "TO" not in words[1:]:
            self._forget()
        elif words[:1] == ["ROLLBACK"]:
            self._in_doubt = True
        elif not self._is_open():
            # Several statements in one text, or something we do not know, have ended it.
            self._in_doubt = True
            self._end(has_ended)

    def _terminated(self, connection: Any) -> None:
        self._in_doubt = True
        self._end(_is_gone)

    def _end(self, probe: Probe | None) -> None:
        triggers = self._forget()
        if not triggers:
            return
        if self._in_doubt:
            self._kit.watch.add(triggers, probe=probe)
        else:
            self._kit.publish(triggers)

    def _forget(self) -> list[Trigger]:
        triggers, self.triggers = self.triggers, []
        if self._kit.hooks.get(self._connection) is self:
            del self._kit.hooks[self._connection]
        remove_logger, remove_listener = self._remove
        remove_logger(self._logged)
        remove_listener(self._terminated)
        return triggers


def _is_gone() -> Phase:
    return Phase.GONE
