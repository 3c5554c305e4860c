"""Operations: what callers on any event loop ask of a thread, and how they are answered."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterable
from typing import Any

Work = Callable[[sqlite3.Connection, int], Any]
"""Runs on the thread with its connection and the time; may run twice, so it keeps nothing."""


class Operation:
    """One caller's request, waiting for its answer."""

    __slots__ = ("error", "future", "is_statement", "loop", "patience_ends", "result", "work")

    def __init__(
        self, work: Work, *, patience_ends: float | None = None, is_statement: bool = False
    ) -> None:
        self.work = work
        self.is_statement = is_statement
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self.patience_ends = patience_ends  # by the clock's seconds; None waits for ever
        self.result: Any = None
        self.error: BaseException | None = None


def answer(operations: Iterable[Operation]) -> None:
    """Resolve the futures from another thread, with one call for each event loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Operation]] = {}
    for operation in operations:
        by_loop.setdefault(operation.loop, []).append(operation)
    for loop, theirs in by_loop.items():
        try:
            loop.call_soon_threadsafe(_resolve, theirs)
        except RuntimeError:  # the loop is closed: nobody is left to hear the answer
            assert loop.is_closed()


def _resolve(operations: list[Operation]) -> None:
    for operation in operations:
        if operation.future.done():
            continue  # the caller was cancelled meanwhile
        if operation.error is not None:
            operation.future.set_exception(operation.error)
        else:
            operation.future.set_result(operation.result)


def nothing(db: sqlite3.Connection, now: int) -> None:
    """The work of an operation that only carries an answer."""
