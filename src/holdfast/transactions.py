"""The caller's own transaction: a task added there commits or vanishes with it.

A `Caller` wraps the connection that the user gives as `within=`.  It runs the store's script on
that connection, on the caller's thread, and sends the triggers once the transaction has
committed: by the driver's own hook where there is one, else by asking the database from a
connection of our own.  Nothing is sent before the commit, nothing after a rollback, and nothing
for a savepoint that was rolled back.

If the process dies between the commit and the sending, arrivals find the task.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from holdfast.sql.query import Script
from holdfast.task import Trigger

T = TypeVar("T")


class Caller(Protocol):
    """The user's open transaction, whatever the driver."""

    is_async: bool

    async def run(self, script: Script[T]) -> T:
        """Run the script on the caller's connection; only for an async driver."""
        ...

    def run_sync(self, script: Script[T]) -> T:
        """Run the script on the caller's connection and thread; only for a sync driver."""
        ...

    def after_commit(self, triggers: Sequence[Trigger]) -> None:
        """Send these triggers when, and only when, the tasks of this transaction are committed."""
        ...
