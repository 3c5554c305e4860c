"""The worker by itself, on a store that only remembers what was settled."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from conditions import until
from holdfast import Holdfast
from holdfast.clock import SystemClock
from holdfast.ids import NodeId
from holdfast.task import Event
from holdfast.testing.build import a_grabbed
from holdfast.worker import worker as module
from holdfast.worker.processes import ProcessPool
from holdfast.worker.suspects import Suspects
from holdfast.worker.worker import Worker


class Remembering:
    def __init__(self) -> None:
        self.events: list[tuple[int, Event]] = []

    async def settle(self, outcomes, *, node):
        self.events += [(outcome.id, outcome.event) for outcome in outcomes]
        return [True] * len(outcomes)


class Rig:
    def __init__(self) -> None:
        self.app = Holdfast("sqlite:///never-opened.db")
        self.store = Remembering()
        self.finished: list[int] = []
        self.worker = Worker(
            node=NodeId("me"),
            store=self.store,
            registry=self.app.registry,
            threads=ThreadPoolExecutor(1),
            processes=ProcessPool(1),
            suspects=Suspects(1, node=NodeId("me"), events=self.app.events),
            finished=self.finished.extend,
            ran=lambda batch: None,
            again=lambda batch: None,
            clock=SystemClock(),
            rng=Random(0),
            events=self.app.events,
        )

    def grabbed(self, task, *ids):
        payload = task.handler.arguments.seal((), {}) if task else b""
        kind = task.handler.kind if task else "unknown"
        return [a_grabbed(id, kind, payload=payload, version=2) for id in ids]


@pytest.fixture
async def rig() -> Rig:
    return Rig()


async def test_an_attempt_taken_back_before_its_first_step_frees_its_slot(rig):
    ran = []

    @rig.app.task
    async def work() -> None:
        ran.append(1)

    rig.worker.start(rig.grabbed(work, 1))
    rig.worker.take_back(1, 2)
    await until(lambda: rig.finished == [1])

    assert (ran, rig.store.events, rig.worker.held) == ([], [], {})


async def test_a_hint_about_an_older_version_stops_nothing(rig):
    let_go = asyncio.Event()

    @rig.app.task
    async def work() -> None:
        await let_go.wait()

    rig.worker.start(rig.grabbed(work, 1))
    rig.worker.take_back(1, 1)
    rig.worker.take_back(99, 2)
    let_go.set()
    await until(lambda: rig.finished == [1])

    assert rig.store.events == [(1, Event.SUCCEEDED)]


async def test_an_attempt_stopped_before_its_first_step_is_handed_back(rig):
    @rig.app.task
    async def work() -> None:
        await asyncio.Event().wait()

    rig.worker.start(rig.grabbed(work, 1))
    await rig.worker.drained(0)

    assert rig.store.events == [(1, Event.REPEATED)]
    assert (rig.finished, rig.worker.held) == ([1], {})


async def test_a_handler_that_will_not_stop_is_left_behind(rig, monkeypatch):
    monkeypatch.setattr(module, "STOP_S", 0.05)
    let_go = asyncio.Event()

    @rig.app.task
    async def deaf() -> None:
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue

    real = rig.store.settle

    async def settle(outcomes, *, node):
        let_go.set()  # it ends after all, while it is being handed back
        for _ in range(5):
            await asyncio.sleep(0)
        return await real(outcomes, node=node)

    rig.store.settle = settle
    rig.worker.start(rig.grabbed(deaf, 1))
    await asyncio.sleep(0)
    await rig.worker.drained(0.01)

    assert rig.store.events == [(1, Event.REPEATED)]
    assert rig.finished == [1]


async def test_a_kind_without_a_handler_is_parked_and_frees_its_slot(rig):
    rig.worker.start(rig.grabbed(None, 1, 2))
    await until(lambda: sorted(rig.finished) == [1, 2])

    assert rig.store.events == [(1, Event.PARKED), (2, Event.PARKED)]


async def test_outcomes_of_one_moment_are_recorded_in_one_batch(rig):
    sizes = []
    real = rig.store.settle

    async def settle(outcomes, *, node):
        sizes.append(len(outcomes))
        await asyncio.sleep(0)
        return await real(outcomes, node=node)

    rig.store.settle = settle

    @rig.app.task
    async def work() -> None: ...

    rig.worker.start(rig.grabbed(work, *range(1, 1201)))
    await until(lambda: len(rig.finished) == 1200)

    assert sorted(rig.finished) == list(range(1, 1201))
    assert len(sizes) <= 5 and max(sizes) <= 500
