"""Workers in processes of their own, as a user starts them, to be killed, stopped and misled."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from holdfast.bench.ground import Place
from holdfast.clock import SystemClock
from holdfast.errors import StoreUnavailable, Unavailable
from holdfast.ids import NodeId
from holdfast.store import Member, Store

DIARY = "HOLDFAST_BENCH_DIARY"  # the variable with the path that `patient` writes to
START_S_MAX = 60.0
STOP_S_MAX = 60.0
LOOK_S = 0.05


class Line(NamedTuple):
    """A line of the diary: what an attempt did when."""

    what: str
    task: int
    version: int
    delivery: int
    at_s: float
    pid: int
    parent: int


class Worker:
    """One `holdfast worker`, with its node."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.node: NodeId | None = None
        self.renewer_pid: int | None = None

    @property
    def pid(self) -> int:
        return self.process.pid

    def recognise(self, members: Sequence[Member]) -> bool:
        """Find the node of this process among the members; True once it is complete."""
        for member in members:
            if member.facts.get("pid") == self.pid and member.is_alive:
                self.node = member.node
                self.renewer_pid = member.facts.get("renewer")
        return self.is_member

    @property
    def is_member(self) -> bool:
        return self.node is not None and self.renewer_pid is not None

    def kill(self) -> None:
        """The process is gone, as after the kernel's out-of-memory killer."""
        self.process.kill()

    def vanish(self) -> None:
        """Process and renewer are gone in the same moment, as when a machine loses its power."""
        pids = [pid for pid in (self.pid, self.renewer_pid) if pid]
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)


class Workers:
    """Starts workers on a place and reads their diary.  All are ended with the block."""

    def __init__(self, place: Place, store: Store) -> None:
        self._place = place
        self._store = store
        self._folder = tempfile.TemporaryDirectory(prefix="holdfast-bench-")
        self._diary = Path(self._folder.name) / "diary"
        self._log = Path(self._folder.name) / "log"
        self._read = 0
        self.lines: list[Line] = []
        self.alive: list[Worker] = []

    async def __aenter__(self) -> Workers:
        self._diary.touch()
        return self

    async def __aexit__(self, *_: object) -> None:
        for worker in self.alive:
            if worker.process.stdin is not None:
                worker.process.stdin.close()  # the polite way: attempts may finish
        try:
            async with asyncio.timeout(STOP_S_MAX):
                await asyncio.gather(*(worker.process.wait() for worker in self.alive))
        except TimeoutError:
            for worker in self.alive:
                worker.vanish()
        self._folder.cleanup()

    async def start(
        self, *, environ: Mapping[str, str] | None = None, prefix: Sequence[str] = ()
    ) -> Worker:
        """A worker that serves; waits until its node is a member and has its renewer."""
        command = [sys.executable, "-m", "holdfast.cli", "worker", "holdfast.bench.patient"]
        known = {
            "HOLDFAST_URL": self._place.url,
            "HOLDFAST_SCHEMA": self._place.schema,
            "HOLDFAST_NODE__RENEWER": "process",
            DIARY: str(self._diary),
        }
        with self._log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *prefix,
                *command,
                "--quiet",
                "--until-stdin-ends",
                env=dict(os.environ) | known | dict(environ or {}),
                stdin=asyncio.subprocess.PIPE,
                stdout=log,
                stderr=log,
            )
        worker = Worker(process)
        self.alive.append(worker)
        await self._until_member(worker)
        return worker

    def end(self, worker: Worker, *, whole_machine: bool = False) -> float:
        """Kill it; answers when."""
        at_s = SystemClock().seconds()
        if whole_machine:
            worker.vanish()
        else:
            worker.kill()
        self.alive.remove(worker)
        return at_s

    def look(self) -> list[Line]:
        """Read on in the diary; answers what is new."""
        with self._diary.open("rb") as diary:
            diary.seek(self._read)
            text = diary.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        new = [_line(line) for line in whole.decode().splitlines()]
        self.lines += new
        return new

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    async def _until_member(self, worker: Worker) -> None:
        since_s, clock = SystemClock().seconds(), SystemClock()
        while not await self._is_member(worker):
            code = worker.process.returncode
            if code is not None or clock.seconds() - since_s > START_S_MAX:
                tail = self.log[-2_000:]
                raise StoreUnavailable(f"a worker did not start (exit code {code}): {tail}")
            await asyncio.sleep(LOOK_S)

    async def _is_member(self, worker: Worker) -> bool:
        try:
            return worker.recognise(await self._store.members())
        except Unavailable:
            return False  # the server is being restarted


def _line(text: str) -> Line:
    what, task, version, delivery, at_s, pid, parent = text.split()
    return Line(what, int(task), int(version), int(delivery), float(at_s), int(pid), int(parent))
