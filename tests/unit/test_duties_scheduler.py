"""The scheduler on virtual time: one fire a slot, however many keep it and however clocks step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from random import Random
from typing import Any

import pytest

from holdfast.duties.duty import Keeper
from holdfast.duties.scheduler import BATCH_MAX, POLL_S, Scheduler
from holdfast.schedule import Schedule, slot_of
from holdfast.store import Filter
from holdfast.task import Trigger
from holdfast.telemetry.events import Events, ScheduleFired, SlotsMissed, StoreFailed
from holdfast.testing.faults import FaultyStore
from holdfast.testing.model import ModelStore
from holdfast.testing.recorder import Recorder
from holdfast.testing.simulate import World, simulate
from holdfast.timing import Every, Timing


class Stepping:
    """The store's clock: the world's, and as many seconds as somebody set it forward or back."""

    def __init__(self, world: World) -> None:
        self.step_s = 0.0
        self._world = world

    def now(self) -> datetime:
        return self._world.now() + timedelta(seconds=self.step_s)

    def seconds(self) -> float:
        return self._world.seconds()


class Town:
    """A store with schedules, and nodes that keep the scheduler; each can be killed."""

    def __init__(self, world: World) -> None:
        self.clock = Stepping(world)
        self.store = ModelStore(clock=self.clock)
        self.events = Events()
        self.heard = Recorder(self.events)
        self.published: list[Trigger] = []
        self.nodes: list[asyncio.Task[None]] = []
        self.keepers: list[Keeper] = []
        self._world = world

    async def put(self, name: str, timing: Timing, **changes: Any) -> None:
        now = (await self.store.schedules()).now
        fields = {"kind": "report", "queue": "q", "payload": b"", "next_at": timing.next_after(now)}
        assert await self.store.put_schedule(
            Schedule(name=name, timing=timing, **(fields | changes))
        )

    def slow(self) -> FaultyStore:
        """The store as a node far away sees it: others act while it waits for an answer."""
        return FaultyStore(self.store, rng=Random(len(self.keepers)), slow=0.5, slow_s=0.05)

    def join(self, store: Any = None) -> None:
        scheduler = Scheduler(
            store or self.store,
            publish=self.published.extend,
            partitions=8,
            clock=self._world,
            events=self.events,
        )
        self.keepers.append(Keeper(scheduler, events=self.events))
        self.nodes.append(asyncio.create_task(self.keepers[-1].keep()))

    async def kill(self, node: asyncio.Task[None]) -> None:
        self.nodes.remove(node)
        node.cancel()
        await asyncio.gather(node, return_exceptions=True)

    async def end(self) -> None:
        for node in list(self.nodes):
            await self.kill(node)

    async def slots(self) -> list[datetime]:
        """The slots of all tasks in the store, in the order of their insert."""
        tasks = await self.store.find(Filter(limit=10_000))
        found = [slot_of(task.metadata) for task in tasks]
        return [one.slot for one in found if one and one.slot]


def played(main: Callable[[Town], Any]) -> Any:
    async def run(world: World) -> Any:
        town = Town(world)
        try:
            return await main(town)
        finally:
            await town.end()

    return simulate(run)


def every(seconds: float, count: int, start: datetime) -> list[datetime]:
    return [start + timedelta(seconds=seconds) * n for n in range(1, count + 1)]


def test_a_slot_fires_at_its_time_never_early_and_its_trigger_goes_out():
    async def main(town: Town):
        await town.put("hourly", Every(3600))
        start = town.clock.now()
        town.join()
        await asyncio.sleep(3599.9)
        before = await town.slots()
        await asyncio.sleep(0.2)
        (task,) = await town.store.find(Filter())
        fired = town.heard.all(ScheduleFired)
        late_s = (task.enqueued_at - start).total_seconds() - 3600
        assert (before, [trigger.id for trigger in town.published]) == ([], [task.id])
        assert fired == [ScheduleFired("hourly", start + timedelta(hours=1), task.id)]
        assert 0 <= late_s < 0.01

    played(main)


def test_three_nodes_fire_each_of_two_hundred_slots_once_while_one_is_killed_each_ten():
    async def main(town: Town):
        rng = Random(5)
        await town.put("often", Every(1, catch_up="all"))
        start = town.clock.now()
        for _ in range(3):
            town.join(town.slow())
        for _ in range(20):
            await asyncio.sleep(10)
            await town.kill(rng.choice(town.nodes))
            town.join(town.slow())
        await asyncio.sleep(0.9)
        assert await town.slots() == every(1, 200, start)
        (schedule,) = (await town.store.schedules()).schedules
        assert schedule.version == 201, "nobody moved it on in vain"

    played(main)


@pytest.mark.parametrize("back_s", [1.0, 90.0, 3600.0])
def test_a_clock_that_steps_back_fires_no_slot_twice(back_s):
    async def main(town: Town):
        await town.put("minutely", Every(60, catch_up="all"))
        start = town.clock.now()
        town.join(town.slow())
        town.join(town.slow())
        await asyncio.sleep(610)
        town.clock.step_s -= back_s
        await asyncio.sleep(back_s + 120)
        assert await town.slots() == every(60, 12, start)

    played(main)


@pytest.mark.parametrize(
    ("catch_up", "fired"),
    [("all", range(1, 66)), ("one", [*range(1, 6), 65]), ("none", range(1, 6))],
)
def test_a_clock_that_steps_forward_follows_the_catch_up_policy(catch_up, fired):
    async def main(town: Town):
        await town.put("minutely", Every(60, catch_up=catch_up))
        start = town.clock.now()
        town.join()
        town.join()
        await asyncio.sleep(310)
        town.clock.step_s += 3600 + 30  # into the middle: the last slot is forty seconds old
        await asyncio.sleep(15)
        assert await town.slots() == [start + timedelta(minutes=n) for n in fired]
        schedule = (await town.store.schedules()).schedules[0]
        assert schedule.missed == 65 - len(fired)
        missed = [SlotsMissed("minutely", schedule.missed)] if schedule.missed else []
        assert town.heard.all(SlotsMissed) == missed

    played(main)


def test_a_schedule_that_is_put_while_it_sleeps_fires_in_time_when_it_is_woken():
    async def main(town: Town):
        town.join()
        await asyncio.sleep(1)
        await town.put("soon", Every(0.5))
        town.keepers[0].wake()
        await asyncio.sleep(0.51)
        assert len(await town.slots()) == 1

    played(main)


def test_a_schedule_of_another_process_is_found_within_the_poll():
    async def main(town: Town):
        town.join()
        await asyncio.sleep(1)
        await town.put("soon", Every(0.5, catch_up="one"))
        await asyncio.sleep(POLL_S)
        assert len(await town.slots()) > 0

    played(main)


def test_many_due_schedules_are_fired_in_steps_without_a_rest():
    async def main(town: Town):
        for number in range(BATCH_MAX * 2 + 5):
            await town.put(f"schedule {number}", Every(60))
        town.join()
        await asyncio.sleep(60.5)
        assert len(await town.slots()) == BATCH_MAX * 2 + 5

    played(main)


def test_a_schedule_that_cannot_be_fired_holds_up_no_other():
    async def main(town: Town):
        await town.put("broken", Every(60), metadata=b"no JSON")
        await town.put("sound", Every(60))
        town.join()
        await asyncio.sleep(60.5)
        assert len(await town.slots()) == 1
        assert town.heard.all(StoreFailed)[0].verb == "scheduler (broken)"

    played(main)


@pytest.mark.parametrize("fault", ["fail_before", "lose_reply"])
def test_a_store_that_fails_or_loses_its_replies_leaves_one_fire_for_each_slot(fault):
    async def main(town: Town):
        await town.put("often", Every(1, catch_up="all"))
        start = town.clock.now()
        for seed in range(3):
            town.join(FaultyStore(town.store, rng=Random(seed), **{fault: 0.3}))
        await asyncio.sleep(120.5)
        town.join()
        await asyncio.sleep(0.1)
        slots = await town.slots()
        assert sorted(slots) == every(1, 120, start)

    played(main)
