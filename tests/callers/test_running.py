"""From the caller's commit to the handler, through the app, with all duties off."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from callers.ways import EIGHT, Psycopg, SQLite3, Way
from conditions import until
from holdfast import Holdfast
from holdfast.dispatch.limits import Limits
from holdfast.telemetry.events import TaskSettled
from holdfast.testing.apps import fresh, opened
from holdfast.testing.faults import FaultyStore
from holdfast.testing.recorder import Recorder

POLLS = ("arrivals", "levels", "submit_due", "counts", "find")


class Program:
    """An app with one task and one node, and whatever counts what it asks of the store."""

    def __init__(self, url: str) -> None:
        self.ran: list[int] = []
        self.stores: list[FaultyStore] = []
        self.app: Holdfast = fresh(url, wrap_store=self._counted)

        @self.app.task(name="note")
        async def note(number: int) -> None:
            self.ran.append(number)

        self.task = note

    def _counted(self, store: Any) -> Any:
        self.stores.append(FaultyStore(store, rng=Random(0)))
        return self.stores[-1]

    @property
    def polls(self) -> int:
        return sum(store.calls[verb] for store in self.stores for verb in POLLS)

    async def enqueue(self, way: Way, number: int) -> None:
        task = self.task.options(within=way.within)
        await way.call(lambda: (task.enqueue_sync if way.thread else task.enqueue)(number))

    @asynccontextmanager
    async def node(self) -> AsyncIterator[None]:
        """A node that never looks by itself, and has nothing left to look for."""
        never = Limits(idle_wait_s=3600, exact_s=3600)
        async with self.app.node(duties=False, limits=never) as node:
            await until(lambda: node.is_idle and self.polls > 0)
            with Recorder(self.app.events) as heard:
                await self.task.enqueue(0)
                await heard.until(TaskSettled)
            if self.app.config.url.startswith("sqlite:"):
                polls = self.polls
                await until(lambda: self.polls > polls)  # the doorbell for these commits
            self.ran.clear()
            yield


@pytest.fixture(params=EIGHT)
def way_type(request: pytest.FixtureRequest) -> type[Way]:
    return EIGHT[request.param]


@pytest.fixture
def url(way_type: type[Way], request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if way_type.store == "sqlite":
        return f"sqlite:///{tmp_path / 'app.db'}"
    return request.getfixturevalue("postgres_url")


@pytest.fixture
async def program(url: str) -> AsyncIterator[Program]:
    program = Program(url)
    async with opened(program.app):
        yield program


@pytest.fixture
async def way(way_type: type[Way], program: Program, url: str) -> AsyncIterator[Way]:
    way = way_type(url.removeprefix("sqlite:///"))
    await way.open()
    yield way
    await way.close()


@pytest.mark.req("TASK-2", "TASK-5")
async def test_after_the_commit_the_task_runs_with_duties_off_and_no_polling_query(
    program: Program, way: Way
) -> None:
    async with program.node():
        with Recorder(program.app.events) as heard:
            polls = program.polls
            await way.begin()
            await program.enqueue(way, 1)
            assert program.ran == []
            await way.commit()
            await heard.until(TaskSettled)

        assert program.ran == [1]
        assert program.polls == polls


@pytest.mark.req("TASK-3")
async def test_after_a_rollback_the_task_never_runs(program: Program, way: Way) -> None:
    async with program.app.node(duties=False) as node:
        await way.begin()
        await program.enqueue(way, 1)
        await way.rollback()
        await way.begin()
        await program.enqueue(way, 2)
        await way.savepoint()
        await program.enqueue(way, 3)
        await way.rollback_savepoint()
        await way.commit()

        await until(lambda: program.ran == [2])
        await node.drained(10)
        assert program.ran == [2]


@pytest.mark.req("TASK-12")
@pytest.mark.parametrize("way_type", [Psycopg, SQLite3], ids=["postgres", "sqlite"])
async def test_without_a_transaction_the_task_gets_one_of_its_own_and_runs(
    program: Program,
) -> None:
    async with program.node():
        with Recorder(program.app.events) as heard:
            polls = program.polls
            handle = await program.task.enqueue(7)
            await heard.until(TaskSettled)

        assert program.ran == [7] and program.polls == polls
        assert (await handle.task()).version == 3
