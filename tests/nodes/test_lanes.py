"""Keys that may not go on: they wait in lanes, in the store, and cost the others nothing."""

from __future__ import annotations

import pytest

from conditions import until
from holdfast.store import Column
from nodes.owner import QUEUE, Owner, enqueued

MAIN = Column(5, "email")
LANE = Column(5, "email", "fpaused")
SMALL = {"window": 40, "reload_at": 10, "look_ahead": 200, "trim_s": 0.05, "lane_trim_s": 0.02}


@pytest.fixture
def an_owner(owner_of):
    def make(name="one", **limits) -> Owner:
        owner = owner_of(name, **(SMALL | {"spill_s": 0.001, "spill_s_max": 0.01} | limits))
        owner.release()
        return owner

    return make


async def mixed(store, *, paused: int, others: int) -> tuple[list, list]:
    """Tasks of a key that will be refused, and after them those of another one."""
    first = await enqueued(store, paused, fairness_key="paused")
    return first, await enqueued(store, others, fairness_key="busy")


@pytest.mark.req("FAIR-79")
async def test_a_key_that_may_not_go_on_leaves_the_window_and_is_served_when_it_may(
    store, an_owner
):
    paused, others = await mixed(store, paused=500, others=300)
    owner = an_owner()
    owner.slots.refused = {"paused"}

    await owner.take([0])
    await until(lambda: len(owner.grabbed) == len(others))
    backlog = owner.dispatcher.intake.partitions[0].columns[MAIN]

    assert owner.ids == others
    assert backlog.span <= 2 * SMALL["window"], "the ack level is never further behind"
    assert len(owner.dispatcher.intake.table) <= 2 * SMALL["window"]
    (stored,) = await store.load(QUEUE, [0])
    assert LANE in stored.columns
    owner.slots.refused.clear()
    owner.dispatcher.slot_freed()
    await until(lambda: len(owner.grabbed) == 800)
    assert owner.ids == [*others, *paused]
    await until(lambda: not owner.dispatcher.intake.stored)
    (stored,) = await store.load(QUEUE, [0])
    assert LANE not in stored.columns


async def test_whoever_takes_the_partition_over_finds_the_lanes(store, an_owner):
    paused, others = await mixed(store, paused=300, others=200)
    first = an_owner()
    first.slots.refused = {"paused"}
    await first.take([0])
    await until(lambda: len(first.grabbed) == len(others))
    await until(lambda: bool(first.dispatcher.intake.stored))
    await first.kill()
    await store.leave([first.id])

    second = an_owner("two")
    await second.take([0])
    await until(lambda: len(second.grabbed) >= len(paused))

    assert second.ids == paused


@pytest.mark.req("FAIR-76", "FAIR-81")
async def test_a_key_that_may_go_on_again_shares_from_now_on(store, an_owner):
    paused, others = await mixed(store, paused=200, others=200)
    owner = an_owner(slots=0)
    owner.slots.refused = {"paused"}
    await owner.take([0])
    await owner.run(100)  # of the other key: the levels of the paused one are long past
    owner.slots.refused.clear()
    owner.dispatcher.slot_freed()
    late = await enqueued(store, 20, fairness_key="paused")
    owner.dispatcher.books.ring()

    await owner.run(320)

    after = owner.ids[100:]
    places = {id: place for place, id in enumerate(after)}
    shares = [sum(id in set(others) for id in after[at : at + 20]) for at in range(0, 200, 20)]
    assert all(9 <= share <= 11 for share in shares), shares
    assert [id for id in after if id not in set(others)] == [*paused, *late]
    assert places[others[-1]] <= 202


async def test_a_key_that_may_not_go_on_holds_up_nobody_after_a_takeover_either(store, an_owner):
    _, others = await mixed(store, paused=500, others=300)
    first, second = an_owner("one", trim_s=60.0), an_owner("two")
    for owner in (first, second):
        owner.slots.refused = {"paused"}
    await first.take([0])
    await until(lambda: len(first.grabbed) == len(others))
    await first.kill()  # before its ack level was persisted: the main line still has everything
    await store.leave([first.id])

    await second.take([0])
    more = await enqueued(store, 50, fairness_key="busy")
    second.dispatcher.hear(())

    await until(lambda: len(second.grabbed) >= len(more))
    assert second.ids == more
