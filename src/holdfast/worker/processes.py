"""Pool processes for handlers that need a core of their own.

    node ── Order ──▶ child          bytes only, see `holdfast.worker.wire`
         ◀─ Started, then one answer

A process that overruns its time limit is killed; one that dies takes only its own attempt with
it.  When the node dies, its children read the end of their pipe and go.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
import socket
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.handler import Handler
from holdfast.outcomes import Again, EndSchedule, Gone, RetryAfter
from holdfast.task import Grabbed, Outcome
from holdfast.worker import verdict, wire
from holdfast.worker.child import serve
from holdfast.worker.verdict import ProcessLost, TimeLimitExceeded

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

JOIN_S = 5.0


class RemoteError(Exception):
    """An exception of the child, as text; no class of it is known here."""


class _Child(NamedTuple):
    process: SpawnProcess
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class ProcessPool:
    """At most `size` processes, started when they are needed and kept."""

    def __init__(self, size: int) -> None:
        self._idle: list[_Child] = []
        self._room = asyncio.Semaphore(size)
        self._all: set[_Child] = set()

    @property
    def pids(self) -> list[int]:
        """The processes that are alive now."""
        return [pid for child in self._all if (pid := child.process.pid) is not None]

    async def run(self, task: Grabbed, handler: Handler) -> Outcome:
        """Run the handler in a process and answer its outcome.

        Raises what the handler raised, `ProcessLost` or `TimeLimitExceeded`.  When it is
        cancelled, the process is killed before it returns.
        """
        async with self._room:
            child = await self._child()
            try:
                answer = await _ask(child, task, handler)
            except BaseException:
                self._end(child)
                raise
            self._idle.append(child)
        return _judged(answer, task, handler)

    def close(self) -> None:
        """Kill every process.  Safe to repeat."""
        for child in list(self._all):
            self._end(child)
        self._idle.clear()

    async def _child(self) -> _Child:
        while self._idle:
            child = self._idle.pop()
            if child.process.is_alive():
                return child
            self._end(child)  # died while it had nothing to do: nobody's attempt is lost
        return await self._started()

    async def _started(self) -> _Child:
        context = multiprocessing.get_context("spawn")
        ours, theirs = socket.socketpair()
        process = context.Process(target=serve, args=(theirs,), daemon=True)
        try:
            process.start()
            reader, writer = await asyncio.open_connection(sock=ours)
        except BaseException:
            ours.close()
            if process.pid is not None:
                process.kill()
            raise
        finally:
            theirs.close()
        child = _Child(process, reader, writer)
        self._all.add(child)
        return child

    def _end(self, child: _Child) -> None:
        self._all.discard(child)
        child.writer.transport.abort()
        child.process.kill()
        child.process.join(JOIN_S)


async def _ask(child: _Child, task: Grabbed, handler: Handler) -> wire.Answer:
    function = handler.function
    order = wire.Order(function.__module__, function.__qualname__, task)
    try:
        child.writer.write(wire.framed(order))
        await child.writer.drain()
        answer = await _received(child.reader)
        if not isinstance(answer, wire.Started):
            return answer
        # Only now: finding a free core and importing the program is not the handler's time.
        async with asyncio.timeout(handler.time_limit_s) as limit:
            return await _received(child.reader)
    except TimeoutError:
        assert limit.expired(), "a pipe has no time-outs of its own"
        raise TimeLimitExceeded(
            f"ran longer than its time limit of {handler.time_limit_s:g} s; its process was killed"
        ) from None
    except (asyncio.IncompleteReadError, OSError):
        child.process.join(JOIN_S)
        raise ProcessLost(
            f"the process of the attempt died ({_death(child.process.exitcode)})"
        ) from None


async def _received(reader: asyncio.StreamReader) -> wire.Answer:
    head = await reader.readexactly(wire.LENGTH_BYTES)
    answer: wire.Answer = wire.answer(await reader.readexactly(wire.length(head)))
    return answer


def _judged(answer: wire.Answer, task: Grabbed, handler: Handler) -> Outcome:
    match answer:
        case wire.Returned(body=body):
            return verdict.of_body(task, body)
        case wire.AskedAgain(delay_s=delay_s, reset_attempts=resets):
            return verdict.of_result(task, handler, Again(delay_s, resets))
        case wire.AskedGone():
            return verdict.of_result(task, handler, Gone())
        case wire.AskedEnd():
            return verdict.of_result(task, handler, EndSchedule())
        case wire.Unfit(reason=reason, has_run=True):
            return verdict.parked(task, f"the handler ran, but its result {reason}")
        case wire.Unfit(reason=reason):
            return verdict.unreadable(task, ValueError(reason))
        case wire.Raised():
            # The child's frames are shown as the cause, as they cannot travel as such.
            raise _rebuilt(answer) from RemoteError(answer.text)
    raise AssertionError(f"a child started twice: {answer}")


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


def _death(exitcode: int | None) -> str:
    if exitcode is not None and exitcode < 0:
        return signal.Signals(-exitcode).name
    return f"exit code {exitcode}"
