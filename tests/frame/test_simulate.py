from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from holdfast.testing.simulate import MORNING, Deadlock, World, simulate


def test_a_day_of_waiting_costs_nothing_and_keeps_its_order():
    async def main(world: World):
        woke = []

        async def sleeper(name, hours):
            await asyncio.sleep(hours * 3600)
            woke.append((name, world.now() - MORNING))

        await asyncio.gather(sleeper("late", 24), sleeper("early", 1))
        return woke

    assert simulate(main) == [("early", timedelta(hours=1)), ("late", timedelta(hours=24))]


def test_timeouts_happen_at_their_virtual_time():
    async def main(world: World):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30):
                await asyncio.sleep(31)
        return world.seconds()

    assert simulate(main) == pytest.approx(30)


def test_waiting_for_what_cannot_come_is_a_deadlock():
    async def main(world: World):
        await asyncio.Event().wait()

    with pytest.raises(Deadlock):
        simulate(main)


def test_a_suspended_machine_finds_its_alarms_late():
    async def main(world: World):
        alarm = asyncio.create_task(asyncio.sleep(10))
        await asyncio.sleep(1)
        world.jump(3600)
        await alarm
        return world.seconds()

    assert simulate(main) == pytest.approx(3601)


def test_two_runs_happen_in_the_same_order():
    async def main(world: World):
        told = []

        async def teller(name):
            for _ in range(50):
                await asyncio.sleep(0.1 * (1 + name % 3))
                told.append((name, round(world.seconds(), 6)))

        await asyncio.gather(*(teller(name) for name in range(10)))
        return told

    assert simulate(main) == simulate(main)
