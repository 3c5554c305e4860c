"""A standing backlog under injected faults and delays drains to nothing.

With HOLDFAST_LONG=1 each of them runs for five minutes, else for a few seconds.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from conditions import until
from holdfast.store import ZERO, Column, LevelCursor
from holdfast.task import State, TaskId
from holdfast.testing.faults import FaultyStore
from nodes.owner import QUEUE, a_task

SECONDS = 300.0 if os.environ.get("HOLDFAST_LONG") else 2.5
FAULTS = {"fail_before": 0.005, "lose_reply": 0.005, "slow": 0.005}  # 1.5 % of all calls
FEWEST, MOST = 3, 1_000
EMAIL = Column(5, "email")


def zipf(rng: Random) -> str:
    """Thirty keys, the first of them far busier than the last."""
    return f"tenant {min(int(rng.paretovariate(1.1)), 30)}"


def near_uniform(rng: Random) -> str:
    return f"tenant {rng.randrange(10_000)}"


@pytest.mark.whole
@pytest.mark.parametrize("key_of", [zipf, near_uniform], ids=["zipf", "near-uniform"])
async def test_a_backlog_that_stands_between_3_and_1000_drains_to_0_under_faults(
    store, owner_of, key_of: Callable[[Random], str]
):
    rng, loop = Random(54), asyncio.get_running_loop()
    faulty = FaultyStore(store, rng=Random(15), **FAULTS)
    limits = {"window": 200, "reload_at": 20, "trim_count": 100, "trim_s": 0.5}
    owner = owner_of("owner", store=faulty, slots=0, retry_s_max=0.05, **limits)
    await owner.take([0])
    owner.release()
    owner.slots.slots_max = 20
    ids: list[TaskId] = []
    drains, waiting = 0, []
    ends_at = loop.time() + SECONDS
    while loop.time() < ends_at:
        # Fill up to a random height, then drain to a random depth, now and then to nothing.
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
