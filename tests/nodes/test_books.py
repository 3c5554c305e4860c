"""The books of an owner on a real store: numbers, deletes and back-offs."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from conditions import until
from holdfast.store import ZERO, Column, LevelCursor, Store
from holdfast.telemetry.events import StoreFailed
from holdfast.testing.faults import FaultyStore
from nodes.owner import QUEUE, Owner, enqueued

EMAIL = Column(5, "email")


async def stored(store: Store) -> int:
    (entries,) = await store.levels(QUEUE, [LevelCursor(0, EMAIL, ZERO, 10_000)])
    return len(entries)


async def standing(owner: Owner, store: Store, count: int) -> None:
    """So many tasks in the backlog of an owner that has no slot for them yet."""
    before = await stored(store)
    await enqueued(store, count)
    owner.dispatcher.hear(())
    async with asyncio.timeout(10):
        while await stored(store) < before + count:
            await asyncio.sleep(0.01)


@pytest.mark.req("FAIR-1")
async def test_numbers_in_a_backlog_grow_and_never_repeat_across_owners_and_crashes(
    store, owner_of
):
    numbers = []
    for name in ("first", "second", "third"):
        owner = owner_of(name, slots=0, trim_s=0.0, trim_count=1)
        await owner.take([0])
        await standing(owner, store, 20)
        await owner.run(10)  # some are acked and deleted before the crash
        await owner.kill()
        numbers += [e.level.seq for record in owner.store.records for e in record.entries]

    assert len(numbers) >= 60
    assert numbers == sorted(set(numbers))
    assert max(numbers) < 2**63


@pytest.mark.req("FAIR-27")
@pytest.mark.parametrize(
    ("limits", "acks"),
    [({"trim_count": 12, "trim_s": 3600.0}, 12), ({"trim_count": 10**6, "trim_s": 0.3}, 1)],
    ids=["by number", "by time"],
)
async def test_deleting_starts_by_number_or_by_time_whichever_comes_first(
    store, owner_of, limits, acks
):
    owner = owner_of("owner", slots=0, grab_batch=1, grabs_max=1, **limits)
    await owner.take([0])
    await standing(owner, store, 30)
    if acks > 1:
        await owner.run(acks - 1)
        owner.dispatcher.books.nudge()
        await asyncio.sleep(0.3)  # several turns of the books
        assert await stored(store) == 30
        acks = 1
    await owner.run(acks)
    owner.dispatcher.books.nudge()

    async with asyncio.timeout(10):
        while await stored(store) == 30:
            await asyncio.sleep(0.01)
    deleted = [record for record in owner.store.records if record.trims]
    assert deleted and all(record.marks for record in deleted)


@pytest.mark.req("FAIR-52")
async def test_a_read_that_failed_is_read_again_after_the_back_off(store, owner_of):
    first = owner_of("first", slots=0)
    await first.take([0])
    await standing(first, store, 50)
    await first.kill()
    faulty = FaultyStore(store, rng=Random(1), fail_before=1.0, verbs=["levels"])
    second = owner_of("second", store=faulty)
    await second.take([0])
    await until(lambda: len(second.heard.all(StoreFailed)) >= 3)

    faulty.heal()  # while a back-off is running
    second.release()

    await until(lambda: len(second.grabbed) == 50)
