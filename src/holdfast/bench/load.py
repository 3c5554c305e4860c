"""The load: tasks with 100 bytes of payload, and a handler that does nothing but count."""

from __future__ import annotations

import asyncio
import cProfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.bench.ground import Place
from holdfast.node.node import Node
from holdfast.store import Store
from holdfast.task import NewTask, State

QUEUE = "bench"
PAYLOAD_BYTES = 100  # as stored: the envelope, the argument's name and the text
TEXT = "x" * (PAYLOAD_BYTES - len(b"J1234") - len(b'{"text":""}'))
BULK = 1_000  # tasks of one enqueue_many
LOOK_S = 0.001
STALL_S = 30.0  # without a single call, whatever is left will not be run


class Load:
    """An app with one kind on a place.  `calls` counts what the handler saw."""

    def __init__(self, place: Place) -> None:
        self.app = place.app()
        self.calls = 0
        self._goal = -1
        self._reached = asyncio.Event()

        @self.app.task(name="noop", queue=QUEUE)
        async def noop(text: str) -> None:
            self.calls += 1
            if self.calls == self._goal:
                self._reached.set()

        self.noop = noop

    async def fill(self, count: int, delay_s: float | None = None) -> None:
        """Enqueue so many tasks, in bulk; with a delay they wait."""
        noop = self.noop.options(delay=delay_s)
        for first in range(0, count, BULK):
            await noop.enqueue_many([(TEXT,)] * min(BULK, count - first))

    async def called(self, count: int) -> None:
        """Wait until the handler was called so often, or until nothing happens any more."""
        self._goal = count
        while self.calls < count:
            before = self.calls
            self._reached.clear()
            try:
                async with asyncio.timeout(STALL_S):
                    await self._reached.wait()
            except TimeoutError:
                if self.calls == before:
                    return


async def settled(node: Node) -> None:
    """Wait until the node has recorded the outcome of all that it ran.

    Looks at the node's memory only, and so often that waiting adds nothing to a figure.
    """
    for _ in range(int(STALL_S / LOOK_S)):
        if node.is_idle:
            return
        await asyncio.sleep(LOOK_S)


async def drained(node: Node, calls: Callable[[], int]) -> None:
    """Wait until nothing is left, or until nothing happens any more: then the check will tell."""
    while True:
        before = calls()
        try:
            return await node.drained(STALL_S)
        except TimeoutError:
            if calls() == before:
                return


def a_task(partition: int = 0) -> NewTask:
    """One task of the load, as the store gets it."""
    task = Load(Place("sqlite:///never-opened.db")).noop
    payload = task.handler.arguments.seal((TEXT,), {})
    assert len(payload) == PAYLOAD_BYTES, f"the payload has {len(payload)} bytes"
    return NewTask(queue=QUEUE, partition=partition, kind="noop", payload=payload)


@dataclass(frozen=True, slots=True)
class Checked:
    """What the store and the handler say after a run that should have done `expected` tasks."""

    expected: int
    calls: int
    done: int
    others: dict[str, int] = field(default_factory=dict)

    @property
    def problem(self) -> str | None:
        """What is wrong, or None: each task was handled once, is DONE, and none is left."""
        if (self.calls, self.done) == (self.expected, self.expected) and not self.others:
            return None
        left = ", ".join(f"{count} {state}" for state, count in self.others.items()) or "none"
        return (
            f"{self.expected} tasks were enqueued, the handler was called {self.calls} times, "
            f"{self.done} are DONE in the archive, and others: {left}"
        )


async def checked(store: Store, *, expected: int, calls: int) -> Checked:
    """Read the store, and compare."""
    counts = await store.counts()
    done = counts.pop(State.DONE, 0)
    others = {state.name: count for state, count in counts.items() if count}
    return Checked(expected, calls, done, others)


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a scenario: its figures, and whether the store agrees."""

    figures: Mapping[str, float | None]
    checks: tuple[Checked, ...]
    notes: tuple[str, ...] = ()


class Profile:
    """Collects what the node part of all runs spent its time on; costs a good part of the speed."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._profiler = cProfile.Profile() if file else None

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """Profile this thread for as long as the block lasts; the file is written at its end."""
        if self._profiler is None or self._file is None:
            yield
            return
        self._profiler.enable()
        try:
            yield
        finally:
            self._profiler.disable()
            self._profiler.dump_stats(self._file)


NO_PROFILE = Profile(None)
