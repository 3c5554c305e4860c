"""A loop that many simulated processes share, in an order that the seed draws.

Every callback knows its process by its context.  Within a process callbacks run in the order in
which they were scheduled, as on any loop; between processes the seed picks who is next:

    process a:  a1 a2 a3        one legal order:  b1 a1 a2 b2 a3
    process b:  b1 b2

A process that was killed is never called again: nothing of it is cleaned up, as with `kill -9`.
One that is stopped is called later: what was due meanwhile runs when it goes on.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from datetime import datetime, timedelta
from random import Random
from typing import Any, Protocol, TypeVar, cast

from holdfast.testing.simulate import MORNING, Deadlock, World

T = TypeVar("T")


class Tell(Protocol):
    def __call__(self, op: str, **fields: Any) -> None: ...


_PROCESS: ContextVar[Process | None] = ContextVar("holdfast_process", default=None)


class Process:
    """A simulated process: its callbacks, its clock, whether it lives."""

    def __init__(self, name: str, *, tell: Tell | None = None) -> None:
        self.name = name
        self.node = ""  # the id of the node that it runs, once that has grabbed something
        self._tell = tell
        self.rng = Random(name)  # of what happens inside of it
        self.store: Any = None  # as it reaches it
        self.crashes: Callable[[], bool] = lambda: False  # whether it may end by itself, now
        self.is_dead = False
        self.is_stopped = False
        self.held: list[asyncio.Handle] = []  # callbacks that wait until it goes on
        self.context = copy_context()
        self.context.run(_PROCESS.set, self)

    def tell(self, op: str, **fields: Any) -> None:
        """Write a line of the history, unless it is dead: then only its remains are swept up."""
        if self._tell is not None and not self.is_dead:
            self._tell(op, **fields)

    def kill(self) -> None:
        """Nothing of it runs any more."""
        self.is_dead = True
        self.held.clear()
        with suppress(RuntimeError):  # no world: it has not begun
            cast(SeededWorld, asyncio.get_running_loop()).bury()

    def crash(self) -> None:
        """Die of what runs in it, if somebody starts another one in its place."""
        if self.crashes():
            self.kill()


class SeededWorld(World):
    """The loop.  What belongs to no process is the scenario itself."""

    def __init__(self, rng: Random, morning: datetime = MORNING) -> None:
        super().__init__(morning)
        self._rng = rng
        self._ready: deque[asyncio.Handle]
        self._scheduled: list[asyncio.TimerHandle]
        self._stopping: bool
        self.spent_s = 0.0  # by the thread that runs now
        self._graves: list[set[asyncio.Task[Any]]] = []

    def bury(self) -> None:
        """Keep what a killed process ran: as garbage it would be closed, which is a clean-up."""
        self._graves.append(asyncio.all_tasks(self))

    def start(self, process: Process, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run the work as this process does."""
        return self.create_task(work, context=process.context.copy())

    def go_on(self, process: Process) -> None:
        """Call what waited since the process was stopped."""
        process.is_stopped = False
        self._ready.extend(process.held)
        process.held.clear()

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """A thread: it does everything at once, and its answer comes when its time is over.

        How long it takes it says by adding to `spent_s`.
        """
        self.spent_s = 0.0
        answer, future = func(*args), self.create_future()
        self.call_later(self.spent_s, _answer, future, answer)
        return future

    def _asyncgen_finalizer_hook(self, generator: Any) -> None:
        """What a killed process left open is not closed any more."""

    def _write_to_self(self) -> None:
        """There is one thread: nobody has to be woken."""

    def _run_once(self) -> None:
        self._pass_time()
        lines: dict[Process | None, deque[asyncio.Handle]] = {}
        for handle in self._ready:
            lines.setdefault(process_of(handle), deque()).append(handle)
        self._ready.clear()
        while lines:
            process = self._rng.choice(list(lines)) if len(lines) > 1 else next(iter(lines))
            handle = lines[process].popleft()
            if not lines[process]:
                del lines[process]
            if handle.cancelled() or (process is not None and process.is_dead):
                continue
            if process is not None and process.is_stopped:
                process.held.append(handle)
            else:
                handle._run()

    def _pass_time(self) -> None:
        """Make ready what is due; if nothing is, let time pass until something is."""
        due = self._scheduled
        while due and due[0].cancelled():
            heapq.heappop(due)
        if not self._ready and not self._stopping:
            if not due:
                raise Deadlock("everybody waits and no alarm is set")
            self._passed_s = max(self._passed_s, due[0].when())
        while due and due[0].when() <= self._passed_s:
            handle = heapq.heappop(due)
            handle._scheduled = False  # type: ignore[attr-defined]
            self._ready.append(handle)


def _answer(future: asyncio.Future[Any], answer: Any) -> None:
    if not future.done():
        future.set_result(answer)


def process_of(handle: asyncio.Handle) -> Process | None:
    context: Context = handle._context  # type: ignore[attr-defined]
    return context.get(_PROCESS)


def here() -> Process | None:
    """The process that this code runs in."""
    return _PROCESS.get()


class SkewedClock:
    """The clock of one process: its time of day is off by `skew_s`, and drifts."""

    def __init__(self, world: World, *, skew_s: float = 0.0, drift: float = 0.0) -> None:
        self._world = world
        self.skew_s = skew_s
        self._drift = drift

    def now(self) -> datetime:
        off_s = self.skew_s + self._drift * self._world.seconds()
        return self._world.now() + timedelta(seconds=off_s)

    def seconds(self) -> float:
        return self._world.seconds()
