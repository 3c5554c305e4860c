"""How late the loop is, and which handler made it so.

A beat on the loop notices how late it comes.  A thread looks meanwhile at what the loop is doing:
when a handler blocks in Python, it sees it in the act; when one holds the interpreter in a C call,
the thread waits for the interpreter too, and gets it in the moment when the call returns, with the
handler still on the loop.  Nothing is counted for each task.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from holdfast.clock import Clock
from holdfast.handler import Mode, Registry
from holdfast.telemetry.events import Events, LagMeasured, LoopBlocked
from holdfast.worker.worker import Worker

TICK_S = 0.25
LATE_S = 0.5  # from then on the thread looks who it is
BLOCKED_S = 1.0
MEASURED_S = 1.0  # between two events
IDLE_PART = 0.1  # of the time spent computing: below that nobody held the interpreter


class Attempt(NamedTuple):
    """What runs at the moment, as the watch wants to know it."""

    attempt: asyncio.Task[Any]
    kind: str
    mode: Mode


def attempts(workers: Iterable[Worker], registry: Registry) -> list[Attempt]:
    """What these workers run."""
    runs = [run for worker in workers for run in worker.runs]
    handlers = [registry.require(run.tasks[0].kind) for run in runs]
    return [
        Attempt(run.attempt, handler.kind, handler.mode)
        for run, handler in zip(runs, handlers, strict=True)
    ]


class LoopWatch:
    """Says how late the loop is, once a second, and who blocked it."""

    def __init__(
        self, running: Callable[[], Sequence[Attempt]], *, clock: Clock, events: Events
    ) -> None:
        self.lag_s = 0.0
        self._running = running
        self._clock = clock
        self._events = events
        self._beaten_at = clock.seconds()
        self._seen: set[asyncio.Task[Any]] = set()

    async def keep(self) -> None:
        over = threading.Event()
        loop = asyncio.get_running_loop()
        thread = threading.Thread(
            target=self._look_on, args=(loop, over), name="holdfast-lag", daemon=True
        )
        self._beaten_at = self._clock.seconds()
        thread.start()
        try:
            await self._beat()
        finally:
            over.set()
            thread.join()

    async def _beat(self) -> None:
        worst_s, told_at = 0.0, self._clock.seconds()
        while True:
            begun_at, computed_s = self._clock.seconds(), _computed_s()
            self._beaten_at = begun_at
            await asyncio.sleep(TICK_S)
            now = self._clock.seconds()
            late_s = max(0.0, now - begun_at - TICK_S)
            worst_s = max(worst_s, late_s)
            if late_s >= BLOCKED_S:
                is_idle = _computed_s() - computed_s < IDLE_PART * late_s
                self._tell(late_s, is_idle=is_idle)
            self._seen = set()
            if now - told_at >= MEASURED_S:
                self._events.emit(LagMeasured(worst_s))
                self.lag_s, worst_s, told_at = worst_s, 0.0, now

    def _tell(self, late_s: float, *, is_idle: bool) -> None:
        running = self._running()
        kinds = {one.kind for one in running if one.attempt in self._seen}
        if not kinds and not is_idle:
            kinds = {one.kind for one in running if one.mode == "thread"}
        if not kinds and self._seen:  # a task that a handler made
            kinds = {one.kind for one in running if one.mode == "async"}
        others = sum(one.kind not in kinds for one in running)
        self._events.emit(LoopBlocked(late_s, tuple(sorted(kinds)), others))

    def _look_on(self, loop: asyncio.AbstractEventLoop, over: threading.Event) -> None:
        while not over.wait(TICK_S) and not loop.is_closed():
            if self._clock.seconds() - self._beaten_at < TICK_S + LATE_S:
                continue
            if (task := asyncio.current_task(loop)) is not None:
                self._seen.add(task)


def _computed_s() -> float:
    """The processor time of this process, all its threads together."""
    used = os.times()
    return used.user + used.system
