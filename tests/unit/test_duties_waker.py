"""The waker on virtual time: never early, oldest first, and asleep until the next due time."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

from holdfast.duties.duty import Keeper
from holdfast.duties.waker import BATCH_MAX, POLL_S, Waker
from holdfast.store import Due
from holdfast.task import TaskId, Trigger
from holdfast.telemetry.events import Events
from holdfast.testing.simulate import World, simulate


class Waiting:
    """The agenda's part that the waker asks; its clock is `ahead_s` before the node's."""

    def __init__(self, world: World, *, ahead_s: float = 0.0) -> None:
        self.rows: dict[int, datetime] = {}
        self.looks = 0
        self._world = world
        self._ahead = timedelta(seconds=ahead_s)

    def add(self, id: int, after_s: float) -> None:
        self.rows[id] = self.now() + timedelta(seconds=after_s)

    def now(self) -> datetime:
        return self._world.now() + self._ahead

    async def submit_due(self, *, limit) -> Due:
        self.looks += 1
        line = sorted((due_at, id) for id, due_at in self.rows.items())
        ids = [id for due_at, id in line if due_at <= self.now()][:limit]
        for id in ids:
            del self.rows[id]
        return Due(
            [Trigger(TaskId(id), 2, "default", 0, "email", 5) for id in ids],
            min(self.rows.values(), default=None),
        )


class Woken:
    """A waker that is kept, and what it submitted when, in seconds of virtual time."""

    def __init__(self, world: World, waiting: Waiting) -> None:
        self.submitted: list[tuple[int, float]] = []
        self._world = world
        waker = Waker(
            waiting,  # type: ignore[arg-type]
            publish=self._hear,
            clock=world,
        )
        self.waker = waker
        self.keeper = Keeper(waker, events=Events())

    def _hear(self, triggers) -> None:
        self.submitted += [(trigger.id, self._world.time()) for trigger in triggers]

    async def during(self, seconds: float) -> list[tuple[int, float]]:
        loop = asyncio.create_task(self.keeper.keep())
        await asyncio.sleep(seconds)
        loop.cancel()
        await asyncio.gather(loop, return_exceptions=True)
        return self.submitted


def test_a_task_is_submitted_at_its_time_with_one_look_and_never_early():
    async def main(world: World) -> tuple[list[tuple[int, float]], int]:
        waiting = Waiting(world)
        waiting.add(1, 3.7)
        submitted = await Woken(world, waiting).during(4)
        return submitted, waiting.looks

    ((id, at),), looks = simulate(main)
    assert id == 1
    assert 3.7 <= at <= 3.705
    assert looks <= 3


def test_more_due_tasks_than_a_batch_are_submitted_at_once_and_the_oldest_first():
    count = 2 * BATCH_MAX + 7

    async def main(world: World) -> list[tuple[int, float]]:
        waiting = Waiting(world)
        for id in range(count):
            waiting.add(id, 1.0 - id / count)  # the last one is due first
        await asyncio.sleep(1.0)
        return await Woken(world, waiting).during(0.01)

    submitted = simulate(main)
    assert [id for id, _ in submitted] == list(reversed(range(count)))


def test_a_delay_a_retry_and_a_timer_that_nobody_announced_are_at_most_five_seconds_late():
    """All three are a due time on a WAITING row; their hints are lost here."""

    async def main(world: World) -> list[float]:
        waiting, late = Waiting(world), []
        woken = Woken(world, waiting)
        for id in range(60):
            world.call_later(id * 0.37, waiting.add, id, 0.2)
        for id, at in await woken.during(40):
            late.append(round(at - (id * 0.37 + 0.2), 3))
        return late

    late = simulate(main)
    assert len(late) == 60
    assert all(0 <= one <= POLL_S == 5.0 for one in late)


def test_a_hint_of_a_sooner_time_wakes_the_waker():
    async def main(world: World) -> list[tuple[int, float]]:
        waiting = Waiting(world)
        woken = Woken(world, waiting)

        def enqueue() -> None:
            waiting.add(1, 0.3)
            woken.keeper.wake()

        world.call_later(1.0, enqueue)
        return await woken.during(3)

    ((_, at),) = simulate(main)
    assert 1.3 <= at <= 1.305


def test_a_clock_that_runs_ahead_makes_nothing_early_and_does_not_besiege_the_store():
    async def main(world: World) -> tuple[list[tuple[int, float]], int]:
        waiting = Waiting(world, ahead_s=-10.0)  # the store is ten seconds behind this node
        waiting.add(1, 2.0)
        submitted = await Woken(world, waiting).during(3)
        return submitted, waiting.looks

    ((_, at),), looks = simulate(main)
    assert 2.0 <= at <= 2.0 + 0.5
    assert looks < 30


def test_a_hint_of_a_later_time_than_the_next_look_wakes_nobody():
    async def main(world: World) -> list[bool]:
        waiting = Waiting(world)
        woken = Woken(world, waiting)
        before = [woken.waker.is_sooner(world.now() + timedelta(seconds=s)) for s in (4.9, 5.1)]
        waiting.add(1, 3.0)
        await woken.during(1.0)
        after = [woken.waker.is_sooner(world.now() + timedelta(seconds=s)) for s in (1.9, 2.1, 60)]
        return before + after

    assert simulate(main) == [True, False, True, False, False]
