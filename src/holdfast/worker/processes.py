"""Pool processes: for handlers that need a core of their own, and for suspects.

A process that overruns its time limit is killed; one that dies takes only its own attempt with
it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from holdfast.handler import Handler
from holdfast.outcomes import RetryAfter
from holdfast.task import Grabbed, Outcome
from holdfast.worker import wire
from holdfast.worker.spawned import Child
from holdfast.worker.transactional import Recorded
from holdfast.worker.verdict import ProcessLost

STARTS_MAX = os.cpu_count() or 1  # at once: to start is to import, which takes a core


class RemoteError(Exception):
    """An exception of the child, as text; no class of it is known here."""


class ProcessPool:
    """At most `size` processes, started when they are needed and kept.

    An attempt runs in the first process that is free: a new one, or one whose attempt has ended
    while the new one was starting.  With `idle_s` a process ends when it has had nothing to do for
    so long.  `is_strict`: a process in which an attempt left threads behind runs no other, and its
    last words are kept.
    """

    def __init__(
        self, size: int, *, node: str = "", idle_s: float | None = None, is_strict: bool = False
    ) -> None:
        self._node = node
        self._idle_s = idle_s
        self._is_strict = is_strict
        self._idle: dict[Child, asyncio.TimerHandle | None] = {}
        self._size = size
        self._room = asyncio.Semaphore(size)
        self._all: set[Child] = set()
        self._starts: set[asyncio.Task[None]] = set()
        self._waiting: deque[asyncio.Future[Child]] = deque()

    @property
    def pids(self) -> list[int]:
        """The processes that are alive now."""
        return [child.pid for child in self._all if child.pid is not None]

    async def run(self, task: Grabbed, handler: Handler) -> Outcome:
        """Run the handler in a process and answer its outcome.

        Raises what the handler raised, `ProcessLost` or `TimeLimitExceeded`.  When it is
        cancelled, the process is killed before it returns.
        """
        async with self._room:
            answer = await self.answer(task, handler)
        outcome = judged(answer.raised if isinstance(answer, wire.NotFound) else answer)
        assert isinstance(outcome, Outcome), "no handler of this mode is transactional"
        return outcome

    def room(self) -> asyncio.Semaphore:
        """To be held while `answer` runs."""
        return self._room

    async def answer(
        self, task: Grabbed, handler: Handler, *, started: Callable[[], None] = lambda: None
    ) -> wire.Answer:
        """As `run`, but as the child said it; `started` is called when the handler begins."""
        function = handler.function
        order = wire.Order(function.__module__, function.__qualname__, task, self._node)
        while True:
            child = await self._child()
            try:
                reply = await child.ask(order, handler, started=started)
            except ProcessLost as lost:
                self._end(child)
                if lost.has_started or child.attempts == 1:
                    raise
                continue  # it died while it had nothing to do: nobody's attempt is lost
            except BaseException:
                self._end(child)
                raise
            if reply.left_threads and self._is_strict:
                self._end(child)
            else:
                self._rest(child)
            return reply.answer

    def prepare(self, count: int, modules: Sequence[str]) -> None:
        """Have so many processes, or `size`, that have imported the modules; nobody waits for it.

        Those that have nothing to do end as all others.  A process that dies of it is nobody's
        loss: the attempt that needs the module will tell.
        """
        while len(self._all) + len(self._starts) < min(count, self._size, STARTS_MAX):
            self._start(modules)

    def close(self) -> None:
        """Kill every process.  Safe to repeat."""
        for start in self._starts:
            start.cancel()
        for child in list(self._all):
            self._end(child)

    async def _child(self) -> Child:
        while self._idle:
            child, timer = self._idle.popitem()
            if timer is not None:
                timer.cancel()
            if child.is_alive:
                return child
            self._end(child)
        free: asyncio.Future[Child] = asyncio.get_running_loop().create_future()
        self._waiting.append(free)
        self._start_more()
        try:
            return await free
        except asyncio.CancelledError:
            if free.done() and not free.cancelled() and free.exception() is None:
                self._rest(free.result())  # it was given in the same moment
            raise

    def _start_more(self) -> None:
        waiting = sum(not free.done() for free in self._waiting)
        while len(self._starts) < min(waiting, STARTS_MAX):
            self._start(())

    def _start(self, modules: Sequence[str]) -> None:
        start = asyncio.create_task(self._started(modules))
        self._starts.add(start)
        start.add_done_callback(self._starts.discard)

    async def _started(self, modules: Sequence[str]) -> None:
        try:
            child = await Child.start(listens=self._is_strict)
        except (OSError, ProcessLost) as error:
            free = self._first_waiting()
            if free is not None:
                free.set_exception(error)
            return
        if modules:
            child.prepare(modules)
        self._all.add(child)
        self._rest(child)

    def _rest(self, child: Child) -> None:
        """It is free: for the first that waits, or until it is needed."""
        free = self._first_waiting()
        if free is not None:
            free.set_result(child)
            return
        timer = None
        if self._idle_s is not None:
            timer = asyncio.get_running_loop().call_later(self._idle_s, self._end, child)
        self._idle[child] = timer

    def _first_waiting(self) -> asyncio.Future[Child] | None:
        while self._waiting:
            free = self._waiting.popleft()
            if not free.done():
                return free
        return None

    def _end(self, child: Child) -> None:
        self._all.discard(child)
        timer = self._idle.pop(child, None)
        if timer is not None:
            timer.cancel()
        child.end()


def judged(answer: wire.Answer) -> Outcome | Recorded:
    """What the child said, as the node would have found it out itself."""
    match answer:
        case wire.Ended(outcome=outcome):
            return outcome
        case wire.Settled(outcome=outcome, is_accepted=is_accepted):
            return Recorded(outcome, is_accepted)
        case wire.Raised():
            # The child's frames are shown as the cause, as they cannot travel as such.
            raise _rebuilt(answer) from RemoteError(answer.text)
    raise AssertionError(f"nothing has run: {answer}")


def _rebuilt(raised: wire.Raised) -> BaseException:
    """The child's exception, as the nearest of its classes that this process has loaded."""
    for module, name in raised.types:
        found: Any = sys.modules.get(module)
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is RetryAfter:
            return RetryAfter(raised.delay_s, raised.message, counts=raised.counts)
        if isinstance(found, type) and issubclass(found, BaseException):
            if found in (Exception, BaseException):
                break
            # Past its __init__, whose parameters nobody knows here.
            with suppress(Exception):
                return found.__new__(found, raised.message)
    return RemoteError(raised.message)
