"""A Django connection of the caller's, inside `transaction.atomic()`.

Django runs `on_commit` functions after the outermost commit, and forgets those of a savepoint
that was rolled back.  It does not notice that PostgreSQL has turned a COMMIT into a ROLLBACK,
which happens when somebody caught a database error inside the block.  So errors are looked out
for, and after one the store is asked what was kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar
from weakref import ref

from holdfast.callers.kit import POSTGRES, SQLITE, Kit, checking, refuse_dialect
from holdfast.callers.scripts import OnlySync, play
from holdfast.callers.sqlite import is_locked, locked_because
from holdfast.callers.watch import has_ended
from holdfast.errors import TransactionRefused
from holdfast.sql.query import Query, Script, Style, rendered
from holdfast.task import Trigger

T = TypeVar("T")

_DIALECTS = {"postgresql": POSTGRES, "sqlite": SQLITE}


def connection_named(alias: str) -> Any:
    """The connection of this thread to the database that Django's settings call `alias`."""
    try:
        from django.core.exceptions import ImproperlyConfigured
        from django.db import connections
        from django.utils.connection import ConnectionDoesNotExist
    except ImportError as error:
        raise TransactionRefused(
            f"within={alias!r} names a database of Django's, but Django is not installed"
        ) from error
    try:
        return connections[alias]
    except (ConnectionDoesNotExist, ImproperlyConfigured) as error:
        raise TransactionRefused(
            f"within={alias!r} names no database of Django's: {error}"
        ) from error


class DjangoCaller(OnlySync):
    """One alias of `DATABASES`, on the thread that uses it, on PostgreSQL or SQLite."""

    def __init__(self, connection: Any, *, kit: Kit) -> None:
        dialect = _DIALECTS.get(connection.vendor, connection.vendor)
        refuse_dialect(kit, dialect, f"Django's database {connection.alias!r}")
        if not connection.in_atomic_block:
            raise TransactionRefused(
                f"Django's database {connection.alias!r} was given as within= outside of a "
                "transaction; open one with `with transaction.atomic():`"
            )
        self._connection = connection
        self._kit = kit

    def run_sync(self, script: Script[T]) -> T:
        # Tests switch a connection to another database under the same alias.
        name = str(self._connection.settings_dict["NAME"])
        if self._kit.checked.get(self._connection) != name:
            play(checking(self._kit), self._execute)
            self._kit.checked[self._connection] = name
        if self._kit.dialect == SQLITE:
            with self._connection.cursor() as cursor:
                cursor.execute("PRAGMA wal_autocheckpoint = 0")  # only the store checkpoints
        try:
            return play(script, self._execute)
        except Exception as error:
            if is_locked(error.__cause__):
                raise TransactionRefused(locked_because(error.__cause__)) from error
            raise

    def after_commit(self, triggers: Sequence[Trigger]) -> None:
        held = list(triggers)
        lookout = self._kit.hooks.get(self._connection)
        if lookout is None:
            lookout = self._kit.hooks[self._connection] = Lookout(self._connection, self._kit)

        def send_triggers() -> None:
            lookout.leave()
            if lookout.has_seen_error:
                self._kit.watch.add(held, probe=has_ended)
            else:
                self._kit.publish(held)

        # Robust: whatever goes wrong with a hint is no reason to skip the caller's own hooks.
        self._connection.on_commit(send_triggers, robust=True)

    def _execute(self, query: Query, params: dict[str, Any]) -> list[Any]:
        with self._connection.cursor() as cursor:
            cursor.execute(rendered(query, Style.PYFORMAT)[0], params)
            return cursor.fetchall() if cursor.description else []


class Lookout:
    """Sees the errors of one connection until its transaction is over."""

    def __init__(self, connection: Any, kit: Kit) -> None:
        self.has_seen_error = False
        self._connection = ref(connection)
        self._hooks = kit.hooks
        connection.execute_wrappers.append(self)

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if not context["connection"].in_atomic_block:
            self.leave()  # the transaction was rolled back, which Django tells nobody
        try:
            return execute(sql, params, many, context)
        except Exception:
            self.has_seen_error = True
            raise

    def leave(self) -> None:
        connection = self._connection()
        if connection is not None and self._hooks.get(connection) is self:
            del self._hooks[connection]
            connection.execute_wrappers.remove(self)
