"""Two owners of one partition on one store: the older epoch is refused, and nothing is lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random

import pytest

from conditions import until
from holdfast.store import START, ZERO, Change, Column, Level, LevelCursor, Store
from holdfast.task import Event, State, TaskId
from holdfast.telemetry.events import GrabLost, PartitionLost, StoreFailed
from holdfast.testing.faults import FaultyStore
from nodes.owner import QUEUE, Owner, enqueued

EMAIL = Column(5, "email")
IN_TURNS = {"grab_batch": 3, "grabs_max": 1}
NEVER = {"trim_s": 3600.0, "trim_count": 1_000_000}
AT_ONCE = {"trim_s": 0.0, "trim_count": 1}


async def mark_of(store: Store) -> Level:
    """The ack level that the next owner would start from."""
    (loaded,) = await store.load(QUEUE, [0])
    return loaded.marks[EMAIL].ack_level if EMAIL in loaded.marks else ZERO


async def stored(store: Store) -> list[TaskId]:
    """The tasks whose triggers stand in the backlog, by level."""
    (entries,) = await store.levels(QUEUE, [LevelCursor(0, EMAIL, ZERO, 10_000)])
    return [entry.trigger.id for entry in entries]


def backlog_of(owner: Owner):
    return owner.dispatcher.intake.partitions[0].columns[EMAIL]


async def standing(owner: Owner, store: Store, count: int) -> list[TaskId]:
    """So many tasks in the backlog of an owner that has no slot for them yet."""
    ids = await enqueued(store, count)
    owner.dispatcher.hear(())
    async with asyncio.timeout(10):
        while set(await stored(store)) != set(ids):
            await asyncio.sleep(0.01)
    return ids


@pytest.mark.req("FAIR-7")
async def test_after_a_crash_an_older_ack_level_repeats_triggers_and_loses_none(store, owner_of):
    old = owner_of("old", slots=0, **NEVER)
    await old.take([0])
    ids = await standing(old, store, 40)
    await old.run(15)
    reached = backlog_of(old).ack_level
    await old.kill()

    assert await mark_of(store) < reached, "A is not persisted at every dispatch"
    new = owner_of("new")
    await new.take([0])
    new.release()
    await until(lambda: len(new.grabbed) == 25)
    await until(lambda: new.dispatcher.is_idle)
    await new.kill()

    assert sorted([*old.ids, *new.ids]) == ids
    assert {lost.task for lost in new.heard.all(GrabLost)} == set(old.ids)


@pytest.mark.req("FAIR-29")
async def test_a_delete_persists_the_ack_level_with_it_so_no_deleted_row_is_crossed(
    store, owner_of
):
    old = owner_of("old", slots=0, **AT_ONCE)
    await old.take([0])
    ids = await standing(old, store, 40)
    await old.run(20)
    async with asyncio.timeout(10):
        while len(await stored(store)) > 20:
            await asyncio.sleep(0.01)
    await old.kill()

    trims = [
        (record.marks[EMAIL].ack_level, to)
        for record in old.store.records
        for _, to in record.trims.values()
    ]
    assert trims and all(ack_level >= to for ack_level, to in trims)
    (first,) = await store.levels(QUEUE, [LevelCursor(0, EMAIL, await mark_of(store), 1)])
    (lowest,) = await store.levels(QUEUE, [LevelCursor(0, EMAIL, ZERO, 1)])
    assert first == lowest, "between A and the first row there was nothing to cross: 0 < 10 000"
    assert sorted(await stored(store)) == sorted(set(ids) - set(old.ids))


@pytest.mark.req("FAIR-30")
async def test_the_ack_level_is_persisted_with_every_write_of_triggers(store, owner_of):
    owner = owner_of("owner", slots=0, **NEVER)
    await owner.take([0])
    await standing(owner, store, 20)
    await owner.run(8)
    reached, before = backlog_of(owner).ack_level, await mark_of(store)

    more = await enqueued(store, 1)
    owner.dispatcher.hear(())
    async with asyncio.timeout(10):
        while more[0] not in await stored(store):
            await asyncio.sleep(0.01)

    assert before < reached
    assert await mark_of(store) == reached
    await owner.run(3)
    assert await mark_of(store) == reached, "dispatch without writes does not persist it"
    await owner.kill()


@pytest.mark.req("FAIR-31")
async def test_a_row_whose_task_is_gone_stays_until_it_is_read_and_then_counts_as_decided(
    store, owner_of
):
    owner = owner_of("owner", slots=0, **AT_ONCE)
    await owner.take([0])
    ids = await standing(owner, store, 10)
    await store.change([Change(id, Event.CANCELLED) for id in ids[:6]])
    await store.clean(keep_days=0, limit=1_000)

    assert sorted(await stored(store)) == ids, "nothing in the store makes a row vanish"
    owner.open_up()
    await until(lambda: len(owner.grabbed) == 4)
    async with asyncio.timeout(10):
        while await stored(store):
            await asyncio.sleep(0.01)
    await owner.kill()

    assert sorted(owner.ids) == ids[6:]
    assert {lost.task for lost in owner.heard.all(GrabLost)} == set(ids[:6])


@pytest.mark.req("FAIR-32", "FAIR-36")
async def test_an_old_owner_that_wakes_up_late_is_refused_gives_up_and_writes_no_final_level(
    store, owner_of
):
    old, new = owner_of("old", slots=0, **AT_ONCE), owner_of("new", slots=0)
    await old.take([0])
    ids = await standing(old, store, 10)
    await old.run(3)
    await until(lambda: backlog_of(old).trim() is None)
    old.store.may_record.clear()  # it is paused before its next write
    (late,) = await enqueued(store, 1)
    old.dispatcher.hear(())

    await new.take([0])
    mark, written = await mark_of(store), len(old.store.records)
    old.store.may_record.set()
    lost = await old.heard.until(PartitionLost)
    old.open_up()
    new.open_up()
    await until(lambda: len(old.grabbed) + len(new.grabbed) == 11)
    await until(lambda: old.dispatcher.is_idle and new.dispatcher.is_idle)

    assert (lost.partition, old.dispatcher.epochs) == (0, {})
    assert len(old.store.records) == written, "not even a last mark"
    assert await mark_of(store) >= mark
    assert sorted([*old.ids, *new.ids]) == [*ids, late]


@pytest.mark.req("FAIR-33")
async def test_what_the_old_owner_committed_is_in_the_new_ones_first_read(store, owner_of):
    old, new = owner_of("old", slots=0), owner_of("new")
    await old.take([0])
    ids = await standing(old, store, 30)
    await until(lambda: old.dispatcher.intake.partitions[0].position > START)
    await old.kill()

    await new.take([0])
    new.release()
    await until(lambda: len(new.grabbed) == 30)
    await until(lambda: new.dispatcher.is_idle)
    await new.kill()

    assert sorted(new.ids) == ids
    assert not new.store.appended, "they were found in the backlog, not ingested anew"


@pytest.mark.req("FAIR-34")
async def test_a_delayed_write_that_lands_behind_the_new_owners_read_loses_no_trigger(
    store, owner_of
):
    """The old owner writes, ownership changes, the new one reads past it, the write lands."""
    old, new = owner_of("old", slots=0), owner_of("new", slots=0)
    await old.take([0])
    ids = await standing(old, store, 5)
    old.store.may_record.clear()
    late = await enqueued(store, 3)
    old.dispatcher.hear(())
    await until(lambda: not old.dispatcher.intake.partitions[0].unwritten)

    await new.take([0])
    async with asyncio.timeout(10):
        while set(await stored(store)) < {*ids, *late}:
            await asyncio.sleep(0.01)
    old.store.may_record.set()
    await old.heard.until(PartitionLost)
    new.open_up()
    await until(lambda: len(new.grabbed) == 8)
    await until(lambda: new.dispatcher.is_idle)

    assert sorted(new.ids) == [*ids, *late]
    assert not old.grabbed


@pytest.mark.req("FAIR-35")
async def test_a_write_whose_reply_is_lost_is_an_error_that_is_repeated(store, owner_of):
    """Whether it happened is unknown: what it wrote may stand there twice, and runs once."""
    faulty = FaultyStore(store, rng=Random(4), lose_reply=0.4, verbs=["record"])
    owner = owner_of("owner", store=faulty, slots=2, **AT_ONCE)
    await owner.take([0])
    ids: list[TaskId] = []
    for _ in range(10):
        ids += await enqueued(store, 20)
        owner.dispatcher.hear(())
        await asyncio.sleep(0.01)
    await until(lambda: len(owner.heard.all(StoreFailed)) >= 2)
    owner.open_up()
    await until(lambda: len(owner.grabbed) >= 200)
    await until(lambda: owner.dispatcher.is_idle)
    faulty.heal()
    await owner.kill()

    assert {failed.verb for failed in owner.heard.all(StoreFailed)} == {"books"}
    assert sorted(owner.ids) == ids


@pytest.mark.req("FAIR-37")
async def test_two_owners_that_are_active_at_once_lose_nothing_and_the_older_marks_nothing(
    store, owner_of
):
    """The old one does not know: it goes on grabbing what it has in memory."""
    limits = NEVER | IN_TURNS
    old, new = owner_of("old", slots=0, **limits), owner_of("new", slots=0, **limits)
    await old.take([0])
    ids = await standing(old, store, 60)
    await new.take([0])
    await until(lambda: new.dispatcher.intake.partitions[0].columns[EMAIL].loaded == 60)
    marks_before = len([one for one in old.store.records if one.marks])

    old.open_up()
    await until(lambda: len(old.grabbed) > 0)  # or the other one may be quicker with all of it
    new.open_up()
    await until(lambda: len(old.grabbed) + len(new.grabbed) >= 60)
    await until(lambda: old.dispatcher.is_idle and new.dispatcher.is_idle)
    more = await enqueued(store, 5)
    new.dispatcher.hear(())
    old.dispatcher.hear(())
    await until(lambda: len(old.grabbed) + len(new.grabbed) >= 65)
    await until(lambda: old.dispatcher.is_idle and new.dispatcher.is_idle)

    assert Counter([*old.ids, *new.ids]) == Counter([*ids, *more])
    assert all([*old.settled, *new.settled])
    assert old.grabbed and new.grabbed, "both were active"
    assert len([one for one in old.store.records if one.marks]) == marks_before
    assert (await store.counts())[State.DONE] == 65


@pytest.mark.parametrize("key", ["k", None])
async def test_a_grab_of_an_earlier_epoch_forgets_nothing_of_the_later_one(store, owner_of, key):
    """The fence refuses it, as if another node had the task; but the new owner is the same node."""
    owner, other = owner_of("owner"), owner_of("other", slots=0)
    await owner.take([0])
    owner.store.may_grab.clear()
    ids = await enqueued(store, 1, ordering_key=key)
    owner.dispatcher.hear(())
    await until(lambda: owner.store.grabs == 1)

    owner.dispatcher.lose([0])
    await other.take([0])
    await other.kill()
    await owner.take([0])
    await asyncio.sleep(0.1)  # what was on its way is found again
    owner.store.may_grab.set()

    await until(lambda: owner.ids == ids)
