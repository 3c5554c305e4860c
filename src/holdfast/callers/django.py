"""A Django connection of the caller's, inside `transaction.atomic()`.

Django runs `on_commit` functions after the outermost commit, and forgets those of a savepoint
that was rolled back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

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
        from django.core.exceptions import ImproperlyConfigured  # type: ignore[import-untyped]
        from django.db import connections  # type: ignore[import-untyped]
        from django.utils.connection import (  # type: ignore[import-untyped]
            ConnectionDoesNotExist,
        )
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

        def send_triggers() -> None:
            self._committed(held)

        # Robust: whatever goes wrong with a hint is no reason to skip the caller's own hooks.
        self._connection.on_commit(send_triggers, robust=True)

    def _committed(self, triggers: list[Trigger]) -> None:
        if self._connection.errors_occurred:
            # Somebody caught a database error inside the block; PostgreSQL may then have turned
            # the COMMIT into a ROLLBACK, which Django does not notice.
            self._kit.watch.add(triggers, probe=has_ended)
        else:
            self._kit.publish(triggers)

    def _execute(self, query: Query, params: dict[str, Any]) -> list[Any]:
        with self._connection.cursor() as cursor:
            cursor.execute(rendered(query, Style.PYFORMAT)[0], params)
            return cursor.fetchall() if cursor.description else []
