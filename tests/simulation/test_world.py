"""The loop that simulated processes share: whose turn it is, who is stopped, who is dead."""

from __future__ import annotations

import asyncio
import gc
from random import Random

import pytest

from holdfast.simulation.world import Process, SeededWorld, SkewedClock, here
from holdfast.testing.simulate import Deadlock


def lived(world: SeededWorld, work) -> object:
    try:
        return world.run_until_complete(work)
    finally:
        world.close()


def order_of(seed: int) -> str:
    """Who ran when, of two processes that each take three steps."""
    world, ran = SeededWorld(Random(seed)), []

    async def step(name: str) -> None:
        for number in range(3):
            ran.append(f"{name}{number}")
            await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(*(world.start(Process(name), step(name)) for name in "ab"))

    lived(world, main())
    return " ".join(ran)


def test_each_process_keeps_its_order_and_the_seed_mixes_them():
    orders = {order_of(seed) for seed in range(50)}

    assert len(orders) > 3
    assert order_of(7) == order_of(7)
    for order in orders:
        assert [one for one in order.split() if one[0] == "a"] == ["a0", "a1", "a2"]
        assert [one for one in order.split() if one[0] == "b"] == ["b0", "b1", "b2"]


def test_a_killed_process_runs_nothing_any_more_not_even_what_cleans_up():
    world, process, ran = SeededWorld(Random(1)), Process("a"), []

    async def work() -> None:
        try:
            ran.append("begun")
            await asyncio.sleep(1)
            ran.append("never")
        finally:
            if here() is not None and not process.is_dead:
                ran.append("cleaned up")

    async def main() -> None:
        world.start(process, work())
        await asyncio.sleep(0.5)
        process.kill()
        await asyncio.sleep(10)

    lived(world, main())

    assert ran == ["begun"]


def test_what_a_killed_process_left_is_not_cleaned_up_as_garbage_either():
    world, process, closed = SeededWorld(Random(1)), Process("a"), []

    async def work() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            closed.append("by whoever collects garbage")

    async def main() -> None:
        world.start(process, work())
        await asyncio.sleep(0)
        process.kill()
        await asyncio.sleep(1)
        gc.collect()
        assert not closed

    lived(world, main())


def test_a_stopped_process_does_later_what_was_due_meanwhile():
    world, process, at = SeededWorld(Random(1)), Process("a"), []

    async def work() -> None:
        for _ in range(3):
            await asyncio.sleep(1)
            at.append(world.seconds())

    async def main() -> None:
        working = world.start(process, work())
        await asyncio.sleep(1.5)
        process.is_stopped = True
        await asyncio.sleep(5)
        world.go_on(process)
        await working

    lived(world, main())

    assert at == pytest.approx([1.0, 6.5, 7.5])


def test_a_thread_answers_when_its_time_is_over_unless_its_process_is_killed():
    world, process, answers = SeededWorld(Random(1)), Process("a"), []

    def thread(takes_s: float) -> str:
        world.spent_s += takes_s
        return f"after {takes_s:g} s"

    async def work(takes_s: float) -> None:
        answer = await world.run_in_executor(None, thread, takes_s)
        answers.append((answer, world.seconds()))

    async def main() -> None:
        for takes_s in (2.0, 5.0):
            world.start(process, work(takes_s))
        await asyncio.sleep(3)
        process.kill()
        await asyncio.sleep(10)

    lived(world, main())

    assert answers == [("after 2 s", 2.0)]


def test_a_process_dies_of_what_it_runs_only_where_somebody_replaces_it():
    kept, replaced = Process("a"), Process("b")
    replaced.crashes = lambda: True

    for process in (kept, replaced):
        process.crash()

    assert (kept.is_dead, replaced.is_dead) == (False, True)


def test_who_waits_for_nothing_is_found_out():
    world = SeededWorld(Random(1))

    with pytest.raises(Deadlock):
        lived(world, asyncio.Event().wait())


def test_a_clock_may_be_off_and_still_count_seconds():
    world = SeededWorld(Random(1))
    clock = SkewedClock(world, skew_s=3600.0)

    assert (clock.now() - world.now()).total_seconds() == 3600.0
    assert clock.seconds() == world.seconds()
    world.close()
