"""The loop around a duty, on virtual time: it rests as told, is woken early, outlives errors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from itertools import pairwise

from holdfast.duties.cleaner import BATCH_MAX, EVERY_S, Cleaner
from holdfast.duties.duty import AT_ONCE, BACK_OFF_S, BACK_OFF_S_MAX, Keeper
from holdfast.policy import Retention
from holdfast.telemetry.events import Events, StoreFailed
from holdfast.testing.recorder import Recorder
from holdfast.testing.simulate import World, simulate


class Scripted:
    """A duty that notes when it runs, and rests or fails as the script says."""

    name = "scripted"

    def __init__(self, world: World, script: Iterable[float | Exception]) -> None:
        self.ran_at: list[float] = []
        self._world = world
        self._script = iter(script)

    async def run_once(self) -> float:
        self.ran_at.append(round(self._world.time(), 6))
        step = next(self._script, 3600.0)
        if isinstance(step, Exception):
            raise step
        return step


async def kept(
    duty: Scripted, seconds: float, *, meanwhile: Callable[[Keeper], None] = lambda _: None
) -> list[object]:
    """Keep the duty for so long; answers the events."""
    with Recorder(events := Events()) as recorder:
        keeper = Keeper(duty, events=events)
        loop = asyncio.create_task(keeper.keep())
        meanwhile(keeper)
        await asyncio.sleep(seconds)
        loop.cancel()
        await asyncio.gather(loop, return_exceptions=True)
        return recorder.heard


def test_a_duty_rests_as_long_as_its_step_says():
    async def main(world: World) -> list[float]:
        duty = Scripted(world, [5.0, 0.25, AT_ONCE, AT_ONCE, 60.0])
        await kept(duty, 100)
        return duty.ran_at

    assert simulate(main) == [0.0, 5.0, 5.25, 5.25, 5.25, 65.25]


def test_a_duty_that_is_woken_does_not_rest_on():
    async def main(world: World) -> list[float]:
        duty = Scripted(world, [60.0, 60.0])
        await kept(duty, 50, meanwhile=lambda keeper: world.call_later(7, keeper.wake))
        return duty.ran_at

    assert simulate(main) == [0.0, 7.0]


def test_a_duty_whose_wake_up_was_lost_looks_again_after_its_rest():
    async def main(world: World) -> list[float]:
        duty = Scripted(world, [5.0] * 20)
        await kept(duty, 16)
        return duty.ran_at

    assert simulate(main) == [0.0, 5.0, 10.0, 15.0]


def test_being_woken_during_a_step_is_not_forgotten():
    async def main(world: World) -> list[float]:
        duty = Scripted(world, [60.0] * 3)
        step = duty.run_once

        async def slow_once() -> float:
            if not duty.ran_at:
                keeper_of_step.wake()  # the hint comes while the store is being asked
                await asyncio.sleep(1)
            return await step()

        duty.run_once = slow_once  # type: ignore[method-assign]
        keeper_of_step = Keeper(duty, events=Events())
        loop = asyncio.create_task(keeper_of_step.keep())
        await asyncio.sleep(30)
        loop.cancel()
        await asyncio.gather(loop, return_exceptions=True)
        return duty.ran_at

    assert simulate(main) == [1.0, 1.0]


def test_a_failing_duty_backs_off_up_to_a_bound_and_starts_anew_after_a_success():
    async def main(world: World) -> tuple[list[float], list[object]]:
        failures: list[float | Exception] = [OSError("away")] * 9
        duty = Scripted(world, [*failures, 1.0, OSError("away")])
        events = await kept(duty, 200)
        return duty.ran_at, events

    ran_at, events = simulate(main)
    waits = [round(b - a, 6) for a, b in pairwise(ran_at)]
    assert waits[:7] == [BACK_OFF_S * 2**n for n in range(6)] + [BACK_OFF_S_MAX]
    assert max(waits) == BACK_OFF_S_MAX
    assert waits[9:11] == [1.0, BACK_OFF_S]
    assert events == [StoreFailed("scripted", "away")] * 10


class Archive:
    """An agenda that has so many old rows to clean."""

    def __init__(self, old: int) -> None:
        self.old = old

    async def clean(self, *, keep_days: float, limit: int) -> int:
        assert keep_days == Retention().finished.total_seconds() / 86_400
        cleaned = min(self.old, limit)
        self.old -= cleaned
        return cleaned


async def test_the_cleaner_takes_bounded_bites_until_nothing_old_is_left():
    archive = Archive(old=2 * BATCH_MAX + 1)
    cleaner = Cleaner(archive, Retention())  # type: ignore[arg-type]

    rests = [await cleaner.run_once() for _ in range(4)]

    assert rests == [AT_ONCE, AT_ONCE, EVERY_S, EVERY_S]
    assert archive.old == 0
