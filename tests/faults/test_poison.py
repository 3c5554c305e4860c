"""Tasks that end their process: their neighbours end DONE, they end in ERROR, the node goes on."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, State
from holdfast.store import Filter
from holdfast.task import Task
from holdfast.testing.apps import opened

CHILD = Path(__file__).with_name("poison_process.py")
UNFINISHED = (State.WAITING, State.SUBMITTED, State.PROCESSING)
NEIGHBOURS = 20


class Restarted:
    """A node process that somebody starts again whenever it dies, as a supervisor does."""

    def __init__(self, url: str) -> None:
        self.deaths: list[int] = []
        self._command = (sys.executable, str(CHILD), url)
        self._process: asyncio.subprocess.Process | None = None

    async def look(self) -> None:
        if self._process is not None and self._process.returncode is not None:
            self.deaths.append(self._process.returncode)
            self._process = None
        if self._process is None:
            self._process = await asyncio.create_subprocess_exec(
                *self._command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
            )

    async def end(self) -> None:
        if self._process is not None:
            if self._process.returncode is None:
                self._process.kill()
            await self._process.wait()


@asynccontextmanager
async def restarted(url: str) -> AsyncIterator[Restarted]:
    node = Restarted(url)
    try:
        yield node
    finally:
        await node.end()


def producer(url: str) -> dict[str, Any]:
    """The same tasks as in poison_process.py, only to enqueue them."""
    app = Holdfast(url)

    @app.task
    async def on_the_loop(number: int) -> None: ...
    @app.task
    async def in_a_thread(number: int) -> None: ...
    @app.batch_task()
    async def in_a_batch(numbers: list[int]) -> None: ...
    @app.task
    async def poison(how: str) -> None: ...
    @app.task
    async def endless() -> None: ...

    return {"app": app} | {
        one.handler.kind: one for one in (on_the_loop, in_a_thread, in_a_batch, poison, endless)
    }


async def played(url: str, how: str) -> tuple[list[int], Task, list[Task]]:
    """A culprit among its neighbours: the deaths of the node, the culprit, the neighbours."""
    tasks = producer(url)
    async with opened(tasks["app"]) as app:
        kinds = ("on_the_loop", "in_a_thread", "in_a_batch")
        neighbours = [await tasks[kinds[n % 3]].enqueue(n) for n in range(NEIGHBOURS)]
        culprit = await (
            tasks["endless"].enqueue() if how == "endless" else tasks["poison"].enqueue(how)
        )
        store = await app.store()
        async with restarted(url) as node, asyncio.timeout(25):
            while await store.find(Filter(states=UNFINISHED, limit=1)):
                await node.look()
                await asyncio.sleep(0.05)
        found = await store.get([culprit.id, *(handle.id for handle in neighbours)])
        return node.deaths, found[culprit.id], [found[handle.id] for handle in neighbours]


@pytest.mark.parametrize(
    ("how", "death", "known"),
    [
        ("exit", 3, "exit code 3, peak memory"),
        ("segfault", -11, "SIGSEGV, peak memory"),
        ("killed", -9, "SIGKILL, peak memory 3"),
        ("stack", -11, "SIGSEGV, peak memory"),
    ],
)
async def test_who_ends_its_process_is_parked_after_two_deliveries_and_its_neighbours_are_done(
    store_url, how, death, known
):
    deaths, culprit, neighbours = await played(store_url, how)

    assert deaths == [death]  # once, with all of them; then the culprit dies alone
    assert (culprit.state, culprit.deliveries, culprit.attempts) == (State.ERROR, 2, 1)
    assert known in culprit.error.splitlines()[-1]
    assert {(task.state, task.deliveries) for task in neighbours} == {(State.DONE, 2)}
    # Grabbed, lost, grabbed and settled: each move raises the version by one.
    assert {task.version for task in neighbours} == {5}


async def test_the_error_tells_where_it_struck_and_no_password(store_url):
    _, culprit, _ = await played(store_url, "exit")

    assert "cannot go on, see postgresql://app:***@db/app" in culprit.error


@pytest.mark.parametrize(
    ("how", "known"),
    [
        ("recursion", "RecursionError"),
        ("memory", "MemoryError"),
        ("endless", "TimeLimitExceeded"),
    ],
)
async def test_what_is_an_exception_or_a_time_limit_ends_nobody_else(store_url, how, known):
    deaths, culprit, neighbours = await played(store_url, how)

    assert deaths == []
    assert (culprit.state, culprit.deliveries) == (State.ERROR, 1)
    assert known in culprit.error
    assert {(t.state, t.deliveries, t.version) for t in neighbours} == {(State.DONE, 1, 3)}
