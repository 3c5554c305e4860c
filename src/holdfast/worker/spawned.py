"""A pool process, as its node sees it: started, asked, watched to its end.

    node ◀─ Ready ─── child          bytes only, see `holdfast.worker.wire`
         ── Order ──▶
         ◀─ Started, then one Reply

When the node dies, its children read the end of their pipe and go.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from multiprocessing.context import SpawnProcess
from multiprocessing.popen_spawn_posix import Popen
from multiprocessing.process import BaseProcess
from typing import Self

from holdfast.handler import Handler
from holdfast.worker import wire
from holdfast.worker.child import serve
from holdfast.worker.memory import RSS_UNIT_BYTES
from holdfast.worker.tail import Tail
from holdfast.worker.verdict import ProcessLost, TimeLimitExceeded

JOIN_S = 5.0
LAST_WORDS_S = 0.5  # for what a dead child has written; somebody else may hold its stderr open
LOOK_S = 0.005
MB = 1 << 20

Started = Callable[[], None]


class _Popen(Popen):
    """Asks the kernel for the memory of the dead, too."""

    peak_bytes = 0

    def poll(self, flag: int = os.WNOHANG) -> int | None:
        if self.returncode is None:
            try:
                pid, status, usage = os.wait4(self.pid, flag)
            except OSError:
                return None  # as it was: somebody else has waited for it
            if pid == self.pid:
                self.returncode = os.waitstatus_to_exitcode(status)
                self.peak_bytes = usage.ru_maxrss * RSS_UNIT_BYTES
        return self.returncode


class _Process(SpawnProcess):
    popen: _Popen

    @staticmethod
    def _Popen(process_obj: BaseProcess) -> Popen:
        assert isinstance(process_obj, _Process)
        popen = process_obj.popen = _Popen(process_obj)
        return popen


class Child:
    """One process that runs one attempt at a time.  `listens`: the node keeps its last words."""

    def __init__(self, process: _Process, tail: Tail | None) -> None:
        self._process = process
        self._tail = tail
        self._stderr: asyncio.BaseTransport | None = None
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter
        self._peak_bytes = 0  # before the attempt
        self.attempts = 0

    @classmethod
    async def start(cls, *, listens: bool) -> Self:
        """A new process that is ready.  Nothing is left when it fails.

        OSError when there cannot be one more, `ProcessLost` when it died before it was ready.
        """
        loop = asyncio.get_running_loop()
        with ExitStack() as opened:
            ours, theirs = socket.socketpair()
            opened.callback(theirs.close)
            words = socket.socketpair() if listens else None
            if words is not None:
                opened.callback(words[1].close)
            args = (theirs, words and words[1])
            process = _Process(target=serve, args=args, daemon=True)
            child = cls(process, Tail() if listens else None)
            try:
                process.start()
                child._reader, child._writer = await asyncio.open_connection(sock=ours)
                if words is not None and (tail := child._tail) is not None:
                    child._stderr, _ = await loop.create_connection(lambda: tail, sock=words[0])
            except BaseException:
                ours.close()
                if words is not None:
                    words[0].close()
                if process.pid is not None:
                    process.kill()
                raise
        try:
            await child._received()
        except (asyncio.IncompleteReadError, OSError):
            lost = await child._lost()
            child.end()
            raise lost from None
        except BaseException:
            child.end()
            raise
        return child

    @property
    def pid(self) -> int | None:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive()

    def prepare(self, modules: Sequence[str]) -> None:
        """Have it import these before it is asked."""
        self._writer.write(wire.framed(wire.Prepare(list(modules))))

    async def ask(self, order: wire.Order, handler: Handler, *, started: Started) -> wire.Reply:
        """Run the attempt and answer what became of it; `started` is called when it begins.

        Raises `ProcessLost`, or `TimeLimitExceeded`; then, and when it is cancelled, the child is
        to be ended.
        """
        self.attempts += 1
        self._peak_bytes = 0
        if self._tail is not None:
            self._tail.forget()
        try:
            self._writer.write(wire.framed(order))
            await self._writer.drain()
            heard = await self._received()
            if isinstance(heard, wire.Reply):
                return heard
            assert isinstance(heard, wire.Started), "a child is ready once"
            self._peak_bytes = heard.peak_bytes
            started()
            # Only now: finding a free core and importing the program is not the handler's time.
            async with asyncio.timeout(handler.time_limit_s) as limit:
                reply = await self._received()
                assert isinstance(reply, wire.Reply), "a child starts an attempt once"
                return reply
        except TimeoutError:
            assert limit.expired(), "a pipe has no time-outs of its own"
            raise TimeLimitExceeded(
                f"ran longer than its time limit of {handler.time_limit_s:g} s; "
                "its process was killed"
            ) from None
        except (asyncio.IncompleteReadError, OSError):
            raise await self._lost() from None

    def end(self) -> None:
        """Kill it.  Safe to repeat."""
        self._writer.transport.abort()
        if self._stderr is not None:
            self._stderr.close()
        self._process.kill()
        self._process.join(JOIN_S)

    async def _received(self) -> wire.Ready | wire.Started | wire.Reply:
        head = await self._reader.readexactly(wire.LENGTH_BYTES)
        body = await self._reader.readexactly(wire.length(head))
        heard: wire.Ready | wire.Started | wire.Reply = wire.reply(body)
        return heard

    async def _lost(self) -> ProcessLost:
        """What is known of the end of a child that has closed its pipe."""
        await _until(lambda: not self._process.is_alive(), JOIN_S)
        if self._tail is not None:
            tail = self._tail
            await _until(lambda: tail.is_over, LAST_WORDS_S)
        how = _death(self._process.exitcode)
        if self._peak_bytes and (peak := self._process.popen.peak_bytes):
            # What was there before the attempt may be the memory of the node, at its start.
            at_most = "" if peak > self._peak_bytes else "at most "
            how += f", peak memory {at_most}{peak / MB:.0f} MB"
        return ProcessLost(
            how,
            last_words=self._tail.text if self._tail is not None else "",
            has_started=self._peak_bytes > 0,
        )


async def _until(is_so: Callable[[], bool], within_s: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            while not is_so():  # noqa: ASYNC110
                await asyncio.sleep(LOOK_S)


def _death(exit_code: int | None) -> str:
    if exit_code is None:
        return "it closed its pipe and ran on"
    if exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        return signal.Signals(-exit_code).name
    except ValueError:  # a real-time signal
        return f"signal {-exit_code}"
