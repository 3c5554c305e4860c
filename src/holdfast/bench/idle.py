"""`idle`: what a node costs that has nothing to do: its processor time, and its statements.

The node's process and its renewer are measured together.  On PostgreSQL the statements are counted
in the log of the private server; on the server of `--url`, as the transactions of its database.  On
SQLite they are what the connections of the node's process run.  What only begins or ends a
transaction is not counted, nor are SQLite's pragmas: the look at `data_version`, for one, reads a
number from memory that is shared with other processes.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from inspect import isawaitable
from pathlib import Path
from random import Random
from typing import Any

from holdfast.app import Holdfast
from holdfast.bench.bare import counted_transactions, logged_statements
from holdfast.bench.ground import Ground, Place
from holdfast.bench.load import QUEUE, Run
from holdfast.bench.report import Mark
from holdfast.clock import SystemClock
from holdfast.stores.sqlite.store import SQLiteStore

CONTROL = ("BEGIN", "COMMIT", "ROLLBACK", "PRAGMA")
SETTLE_S = 3.0  # after the start: takeovers and first looks are not idleness


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    seconds: float = 30.0
    tasks: int = 0
    name = "idle"

    @property
    def marks(self) -> Sequence[Mark]:
        return (
            Mark(figure="cpu_percent", at_most=1.0),
            Mark(figure="statements_per_s", at_most=5.0),
        )

    @property
    def options(self) -> Mapping[str, Any]:
        return {"seconds": self.seconds}

    async def run(self, ground: Ground) -> Run:
        async with ground.place() as place:
            if place.is_sqlite:
                return await self._on_sqlite(place)
            return await self._on_postgres(place, ground)

    async def _on_sqlite(self, place: Place) -> Run:
        counter = Statements()
        app = Holdfast(
            place.url,
            wrap_store=lambda _: SQLiteStore(
                place.file, clock=SystemClock(), rng=Random(), connect=counter.connect
            ),
        )
        return await self._measured(app, counter.counted)

    async def _on_postgres(self, place: Place, ground: Ground) -> Run:
        log = ground.folder / "server.log"
        if ground.is_ours:
            async with logged_statements(place.url):
                return await self._measured(place.app(), lambda: _lines(log))
        async with counted_transactions(place.url) as counted:
            return await self._measured(place.app(), counted)

    async def _measured(self, app: Holdfast, statements: Callable[[], Any]) -> Run:
        @app.task(name="noop", queue=QUEUE)
        async def noop() -> None: ...

        clock = SystemClock()
        async with app, app.node():
            await asyncio.sleep(SETTLE_S)
            used_s, since = cpu_s(), clock.seconds()
            await asyncio.sleep(self.seconds)
            cpu_percent = (cpu_s() - used_s) / (clock.seconds() - since) * 100
            # Counting costs time as well: it begins when the time is known.
            count, since = await _now(statements), clock.seconds()
            await asyncio.sleep(self.seconds)
            per_s = (await _now(statements) - count) / (clock.seconds() - since)
        figures: dict[str, float | None] = {"cpu_percent": cpu_percent, "statements_per_s": per_s}
        return Run(figures, ())


class Statements:
    """Counts what is run on the connections that it makes."""

    def __init__(self) -> None:
        self.count = 0
        self._lock = threading.Lock()
        self._connections: list[sqlite3.Connection] = []

    def connect(self, *words: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = sqlite3.connect(*words, **options)
        self._connections.append(connection)
        return connection

    def counted(self) -> int:
        """How many there were since the first call."""
        for connection in self._connections:
            with suppress(sqlite3.ProgrammingError):  # it is closed
                connection.set_trace_callback(self._ran)
        return self.count

    def _ran(self, statement: str) -> None:
        if not statement.startswith(CONTROL):
            with self._lock:
                self.count += 1


def cpu_s() -> float:
    """Processor time of this process and of its children that are alive."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return sum(_cpu_s(pid) for pid in ("self", *children))


def _cpu_s(pid: str) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0  # it has ended meanwhile
    ticks = int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


async def _now(statements: Callable[[], Any]) -> int:
    found = statements()
    return int(await found if isawaitable(found) else found)


def _lines(log: Path) -> int:
    """Statements in the log of the server, but for those that only begin or end a transaction."""
    with log.open("rb") as lines:
        return sum(
            b"LOG:  execute" in line or (b"LOG:  statement" in line and not _is_control(line))
            for line in lines
        )


def _is_control(line: bytes) -> bool:
    return line.partition(b"statement: ")[2].startswith(tuple(word.encode() for word in CONTROL))
