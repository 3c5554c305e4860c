"""A thread with a connection of its own, for what does not need the writer.

Operations run one after the other, each answered at once.  A read of several statements sees
one snapshot; in WAL mode it neither waits for the writer nor stops it.

Where reads are small, a caller whose thread is free does not wait for two threads to change places:
while nobody else asks and the last read was quick, it reads by itself, on the same connection.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from holdfast.clock import Clock
from holdfast.errors import StoreUnavailable
from holdfast.stores.sqlite.connection import is_mistake, unavailable
from holdfast.stores.sqlite.operations import Operation, Work, answer, nothing
from holdfast.stores.sqlite.rows import micros

QUICK_S = 0.0005  # a read that takes longer must not hold up an event loop


class Reader:
    """Opened by `start`, ended by `close`; the thread owns the connection in between."""

    def __init__(
        self,
        name: str,
        path: str,
        *,
        connect: Callable[[], sqlite3.Connection],
        clock: Clock,
        small: bool = False,
    ) -> None:
        self._path = path
        self._connect = connect
        self._clock = clock
        self._queue: SimpleQueue[Operation | None] = SimpleQueue()
        self._door = threading.Lock()  # nothing is put into the queue after its end
        self._is_open = False
        self._turn = threading.Lock()  # whoever has it may use the connection
        self._is_small = small
        self._is_quick = False  # the last read
        self._thread = threading.Thread(target=self._work, name=f"holdfast-{name}", daemon=True)

    def start(self) -> None:
        """Connect and begin to answer; raises what connecting raises."""
        self._db = self._connect()
        self._is_open = True
        self._thread.start()

    async def run(self, work: Work) -> Any:
        if self._is_quick and self._queue.empty() and self._turn.acquire(blocking=False):
            try:
                if self._is_open:
                    return self._read(work)
            except Exception as error:
                raise self._as_ours(error) from error
            finally:
                self._turn.release()
        operation = Operation(work)
        with self._door:
            if not self._is_open:
                raise StoreUnavailable(f"{self._path}: the store is closed")
            self._queue.put(operation)
        return await operation.future

    async def stop(self) -> None:
        """Answer what was asked before, then end.  Safe to repeat."""
        with self._door:
            was_open, self._is_open = self._is_open, False
        if was_open:
            self._farewell = Operation(nothing)
            self._queue.put(None)
            await asyncio.shield(self._farewell.future)
            self._thread.join()

    def _work(self) -> None:
        while (operation := self._queue.get()) is not None:
            try:
                with self._turn:
                    operation.result = self._read(operation.work)
            except Exception as error:
                operation.error = self._as_ours(error)
            answer([operation])
        with self._turn:
            self._db.close()
        answer([self._farewell])

    def _read(self, work: Work) -> Any:
        began = self._clock.seconds()
        self._db.execute("BEGIN")
        try:
            return work(self._db, micros(self._clock.now()))
        finally:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            self._is_quick = self._is_small and self._clock.seconds() - began < QUICK_S

    def _as_ours(self, error: Exception) -> Exception:
        if isinstance(error, sqlite3.Error) and not is_mistake(error):
            return unavailable(error, self._path)
        return error
