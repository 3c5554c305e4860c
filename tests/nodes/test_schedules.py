"""One fire for each slot: with three nodes that are killed in turns, and with clocks that step.

With HOLDFAST_LONG=1 it is two hundred slots, else sixty.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from holdfast import Every, Holdfast, State
from holdfast.address import Address
from holdfast.clock import SystemClock
from holdfast.duties.scheduler import Scheduler
from holdfast.errors import Unavailable
from holdfast.node.compose import make_store
from holdfast.schedule import Schedule, slot_of
from holdfast.store import Filter, Store
from holdfast.telemetry.events import Events
from holdfast.testing.apps import migrate, opened
from holdfast.testing.contracts.builders import eventually

CHILD = Path(__file__).with_name("schedule_process.py")
EVERY_S = 0.25
SLOTS = 200 if os.environ.get("HOLDFAST_LONG") else 60
KILLED_EACH = 10


class Fleet:
    """Three processes, of which one is killed and replaced now and then."""

    def __init__(self, url: str) -> None:
        self.killed = 0
        self._url = url
        self._rng = Random(3)
        self._nodes: list[asyncio.subprocess.Process] = []

    async def __aenter__(self) -> Fleet:
        for _ in range(3):
            await self._start()
        for node in self._nodes:
            assert node.stdout is not None
            assert (await asyncio.wait_for(node.stdout.readline(), 60)).startswith(b"ready")
        return self

    async def __aexit__(self, *_: object) -> None:
        for node in self._nodes:
            node.kill()
            await node.communicate()

    async def replace_one(self) -> None:
        node = self._nodes.pop(self._rng.randrange(len(self._nodes)))
        os.kill(node.pid, signal.SIGKILL)
        await node.communicate()
        self.killed += 1
        await self._start()

    async def _start(self) -> None:
        pipe = asyncio.subprocess.PIPE
        self._nodes.append(
            await asyncio.create_subprocess_exec(
                sys.executable, str(CHILD), self._url, str(EVERY_S), stdout=pipe
            )
        )


async def fired(store: Store) -> list[datetime]:
    """The slots of all tasks that were ever fired, by id."""
    slots, after = [], None
    while page := await store.find(Filter(after=after, limit=1_000)):
        slots += [one.slot for task in page if (one := slot_of(task.metadata)) and one.slot]
        after = page[-1].id
    return slots


@pytest.mark.whole
@pytest.mark.req("TASK-84")
async def test_three_nodes_of_which_one_is_killed_each_ten_slots_fire_each_slot_once(store_url):
    app = Holdfast(store_url)
    async with opened(app), Fleet(store_url) as fleet:
        store = await app.store()
        (first,) = (await store.schedules()).schedules
        counted = 0
        async with asyncio.timeout(240):
            while counted < SLOTS:
                await asyncio.sleep(EVERY_S)
                counted = len(await fired(store))
                if counted >= (fleet.killed + 1) * KILLED_EACH:
                    await fleet.replace_one()
        await app.schedules.pause("often")
        (last,) = (await store.schedules()).schedules
        slots = await fired(store)

        assert fleet.killed >= SLOTS / KILLED_EACH - 1
        assert (last.name, last.source, last.missed) == ("often", "code", 0), "one registration"
        assert first.next_at is not None and slots
        start = min(slots)
        assert start <= first.next_at
        every = timedelta(seconds=EVERY_S)
        expected = [start + n * every for n in range(len(slots))]
        assert sorted(slots) == expected, "one fire for each slot, and none is missing"
        assert last.last_at == expected[-1] and len(slots) >= SLOTS
        done = Filter(states=[State.DONE], limit=10_000)

        async def all_done() -> bool:
            return len(await store.find(done)) == len(slots)

        async with asyncio.timeout(60):
            while not await all_done():
                await asyncio.sleep(0.1)


# ── clocks that step ──────────────────────────────────────────────────────────────────────────


class Stepping(SystemClock):
    """This machine's clock, set forward or back by somebody."""

    step = timedelta()

    def now(self) -> datetime:
        return datetime.now(UTC) + self.step


Step = Callable[[float], Awaitable[None]]


@pytest.fixture
async def stepping(
    store_url: str, request: pytest.FixtureRequest
) -> AsyncIterator[tuple[Store, Step]]:
    """A store, and a way to set its clock to so many seconds from the true time."""
    await migrate(store_url)
    clock = Stepping()
    store = make_store(Address(url=store_url), clock=clock, rng=Random(0))
    await store.open()

    async def step(by_s: float) -> None:
        clock.step = timedelta(seconds=by_s)
        if store_url.startswith("postgres"):
            await _shift_server(request.getfixturevalue("postgres"), store_url, by_s)
            await eventually(lambda: _has_clock(store, by_s))

    yield store, step
    await store.close()


async def _shift_server(server: Any, url: str, by_s: float) -> None:
    """For connections made from now on; the others end."""
    name = url.rpartition("/")[2]
    server.execute(f"ALTER DATABASE {name} SET holdfast.clock_shift = '{by_s} seconds'")
    server.execute(
        f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = '{name}'"
    )


async def _has_clock(store: Store, by_s: float) -> bool:
    try:
        now = (await store.schedules()).now
    except Unavailable:
        return False
    return abs((now - datetime.now(UTC)).total_seconds() - by_s) < 60


def two_nodes(store: Store) -> list[Scheduler]:
    return [
        Scheduler(
            store,
            publish=lambda triggers: None,
            partitions=store.partitions,
            clock=SystemClock(),
            events=Events(),
        )
        for _ in range(2)
    ]


@pytest.mark.parametrize(("catch_up", "made_up_for"), [("all", 60), ("one", 1)], ids=["all", "one"])
async def test_clocks_that_step_forward_and_back_fire_no_slot_twice(
    stepping, catch_up, made_up_for
):
    store, step = stepping
    minute = timedelta(minutes=1)
    now = (await store.schedules()).now
    timing = Every(60, now.replace(microsecond=0) - timedelta(seconds=30), catch_up=catch_up)
    start = timing.next_after(now)
    assert await store.put_schedule(
        Schedule(name="minutely", timing=timing, kind="k", queue="q", payload=b"", next_at=start)
    )
    nodes = two_nodes(store)

    async def look() -> list[datetime]:
        await asyncio.gather(*(node.run_once() for node in nodes))
        return sorted(await fired(store))

    early = await look()
    await step(3600.0)
    forward = await look()
    await step(-3600.0)
    back = await look()
    await step(3600.0)
    again = await look()
    await step(3600.0 + 60.0)
    after = await look()

    slots = [start + n * minute for n in range(60)][-made_up_for:]
    assert early == [], "its first slot is half a minute away"
    assert forward == back == again == slots
    assert after == [*slots, start + 60 * minute]
