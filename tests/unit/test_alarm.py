"""The alarm: one timer for everybody who was refused, in virtual time."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from holdfast.booking import Full
from holdfast.dispatch.alarm import OUTDATED_MAX, REST_S, Alarm
from holdfast.testing.build import a_trigger
from holdfast.testing.simulate import World, simulate

IDLE_WAIT_S = 5.0


class Rig:
    """An alarm, and what it said when."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.due: list[tuple[float, set[str | None], bool]] = []
        self.waited: list[float] = []
        self.alarm = Alarm(
            lambda *due: self.due.append((self.now_s, set(due[0]), due[1])),
            lambda: self.waited.append(self.now_s),
            clock=world,
            idle_wait_s=IDLE_WAIT_S,
        )

    @property
    def now_s(self) -> float:
        return round(self.world.seconds(), 3)

    def refuse(self, wait_s: float | None, key: str | None = None, **fields) -> None:
        until = None if wait_s is None else self.world.now() + timedelta(seconds=wait_s)
        full = Full(until, key_only=key is not None or bool(fields))
        self.alarm.set(a_trigger(fairness_key=key, **fields), full)


def test_many_who_are_refused_until_one_time_are_asked_together_and_nobody_else():
    async def main(world: World) -> None:
        rig = Rig(world)
        for number in range(1_000):
            rig.refuse(0.5, f"k{number}")
        rig.refuse(0.7)
        rig.refuse(0.7, "late", ordering_key="first")
        await asyncio.sleep(2)

        assert rig.due == [
            (0.5, {f"k{number}" for number in range(1_000)}, False),
            (0.7, {"first"}, True),
        ]
        assert rig.waited == []

    simulate(main)


def test_whoever_is_refused_again_is_asked_at_the_new_time_only():
    async def main(world: World) -> None:
        rig = Rig(world)
        for wait_s in (0.5, 0.9, 0.3, 0.6):
            rig.refuse(wait_s, "key")
        rig.refuse(0.4, "key", kind="other")
        await asyncio.sleep(2)

        assert rig.due == [(0.4, {"key"}, False), (0.6, {"key"}, False)]

    simulate(main)


def test_times_that_have_passed_are_asked_for_without_a_busy_loop():
    async def main(world: World) -> None:
        rig = Rig(world)
        alarm = rig.alarm
        alarm._due = lambda keys, is_kind_due: (rig.due.append((0, set(), True)), rig.refuse(-1.0))
        rig.refuse(-1.0)
        await asyncio.sleep(1.0)
        alarm.cancel()

        assert 0.9 / REST_S <= len(rig.due) <= 1.1 / REST_S

    simulate(main)


def test_a_refusal_without_a_time_is_asked_again_once_the_idle_wait_is_over():
    async def main(world: World) -> None:
        rig = Rig(world)
        for number in range(1_000):
            rig.refuse(None, f"k{number}")
            await asyncio.sleep(0.001)
        await asyncio.sleep(20)
        assert rig.waited == [IDLE_WAIT_S] and rig.due == []

        rig.refuse(None)
        await asyncio.sleep(20)
        assert rig.waited == [IDLE_WAIT_S, 21.0 + IDLE_WAIT_S]

    simulate(main)


def test_times_that_count_no_more_do_not_fill_memory():
    async def main(world: World) -> None:
        rig = Rig(world)
        for number in range(10_000):
            rig.refuse(3_600.0 + number, f"k{number % 10}")

        assert len(rig.alarm._times) <= 2 * 10 + OUTDATED_MAX + 1
        rig.alarm.cancel()

    simulate(main)


def test_when_old_times_are_let_go_of_everybody_is_still_asked_at_the_latest_one():
    async def main(world: World) -> None:
        rig = Rig(world)
        rig.refuse(1.0, "first")
        for later in range(100):
            for number in range(10):
                rig.refuse(2.0 + later + number / 10, f"k{number}")
        await asyncio.sleep(200)

        assert rig.due == [
            (1.0, {"first"}, False),
            *((101.0 + number / 10, {f"k{number}"}, False) for number in range(10)),
        ]

    simulate(main)


def test_after_its_end_nobody_is_asked():
    async def main(world: World) -> None:
        rig = Rig(world)
        rig.refuse(0.9)
        rig.refuse(0.5)
        rig.refuse(None)
        rig.alarm.cancel()
        await asyncio.sleep(20)

        assert rig.due == [] and rig.waited == []

    simulate(main)
