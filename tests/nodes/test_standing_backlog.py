"""A standing backlog under injected faults and delays drains to nothing.

On the real stores for a few seconds, with HOLDFAST_LONG=1 for five minutes; in virtual time always
for five minutes.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from conditions import until
from holdfast.store import ZERO, Column, LevelCursor, Store
from holdfast.task import State, TaskId
from holdfast.testing.faults import VERBS, FaultyStore
from holdfast.testing.model import ModelStore
from holdfast.testing.simulate import World, simulate
from nodes.owner import QUEUE, Owner, a_task

SECONDS = 300.0 if os.environ.get("HOLDFAST_LONG") else 2.5
FAULTS = {"fail_before": 0.005, "lose_reply": 0.005, "slow": 0.005}  # 1.5 % of all calls
FEWEST, MOST = 3, 1_000
EMAIL = Column(5, "email")
LIMITS = {
    "look_ahead": 100,
    "window": 50,
    "reload_at": 10,
    "trim_count": 100,
    "trim_s": 0.5,
    "retry_s_max": 0.05,
}


def zipf(rng: Random) -> str:
    """Thirty keys, the first of them far busier than the last."""
    return f"tenant {min(int(rng.paretovariate(1.1)), 30)}"


def near_uniform(rng: Random) -> str:
    return f"tenant {rng.randrange(10_000)}"


KEYS = pytest.mark.parametrize("key_of", [zipf, near_uniform], ids=["zipf", "near-uniform"])


class Distant:
    """A store that is a tenth of a second away."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._store, name)
        if name not in VERBS:
            return real

        async def call(*args: Any, **named: Any) -> Any:
            await asyncio.sleep(0.1)
            return await real(*args, **named)

        return call


@pytest.mark.whole
@pytest.mark.req("FAIR-54")
@KEYS
async def test_a_backlog_that_stands_between_3_and_1000_drains_to_0_under_faults(
    store, owner_of, key_of: Callable[[Random], str]
):
    faulty = FaultyStore(store, rng=Random(15), **FAULTS)
    owner = owner_of("owner", store=faulty, slots=0, **LIMITS)

    await stands_and_drains(store, faulty, owner, key_of, SECONDS)


@pytest.mark.whole
@pytest.mark.req("FAIR-54")
@KEYS
def test_it_does_so_for_five_minutes(key_of: Callable[[Random], str]):
    """The same in virtual time, on the model store, which is far away and as faulty."""

    async def main(world: World) -> None:
        store = ModelStore(clock=world)
        faulty = FaultyStore(Distant(store), rng=Random(17), **FAULTS)
        owner = Owner(faulty, "owner", slots=0, clock=world, **LIMITS)
        await stands_and_drains(store, faulty, owner, key_of, 300.0)
        assert world.seconds() >= 300.0
        await owner.kill()

    simulate(main)


async def stands_and_drains(
    store: Store, faulty: FaultyStore, owner: Owner, key_of: Callable[[Random], str], for_s: float
) -> None:
    """Fill up to a random height, drain to a random depth, now and then to nothing; and again."""
    rng, loop = Random(54), asyncio.get_running_loop()
    await owner.take([0])
    owner.release()
    owner.slots.slots_max = 20
    ids: list[TaskId] = []
    drains, waiting = 0, []
    ends_at = loop.time() + for_s
    while loop.time() < ends_at:
        target = rng.randint(FEWEST, MOST)
        while (missing := target - (len(ids) - len(owner.grabbed))) > 0:
            batch = [a_task(fairness_key=key_of(rng)) for _ in range(min(missing, 200))]
            ids += [one.id for one in await store.enqueue(batch)]
            owner.dispatcher.hear(())
        waiting.append(len(ids) - len(owner.grabbed))
        depth = rng.choice([0, FEWEST, target // 2])
        owner.slots.left = 0
        await until_left(owner, ids, depth)
        drains += depth == 0
    faulty.heal()
    await until_left(owner, ids, 0)
    owner.open_up()  # what was written twice needs a slot to be found out
    await until(lambda: owner.dispatcher.is_idle)

    assert Counter(owner.ids) == Counter(ids)
    assert drains >= 1
    assert min(waiting) >= FEWEST and max(waiting) <= MOST
    assert (await store.counts())[State.DONE] == len(ids)
    await until_nothing_is_stored(store)


async def until_left(owner, ids: list[TaskId], depth: int) -> None:
    """Let the owner go on until so many are left; a grab that is lost gives its allowance back."""
    async with asyncio.timeout(20):
        while (left := len(ids) - len(owner.grabbed) - depth) > 0:
            if not owner.slots.left:
                owner.slots.left = max(1, left - owner.dispatcher.in_flight)
                owner.dispatcher.slot_freed()
            await asyncio.sleep(0.002)
    owner.slots.left = 0


async def until_nothing_is_stored(store) -> None:
    async with asyncio.timeout(10):
        while True:
            (mark,) = [one.marks for one in await store.load(QUEUE, [0])]
            ack_level = mark[EMAIL].ack_level if EMAIL in mark else ZERO
            if await store.levels(QUEUE, [LevelCursor(0, EMAIL, ack_level, 1)]) == [[]]:
                return
            await asyncio.sleep(0.05)
