"""An elder that is retried comes after its younger siblings, and is found wherever they stand."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from conditions import until
from holdfast.task import Event, Outcome
from nodes.owner import a_task, enqueued

SMALL = {
    "window": 40, "reload_at": 10, "look_ahead": 200, "lane_window": 4, "lanes_loaded": 60,
    "trim_s": 0.05, "lane_trim_s": 0.02, "spill_s": 0.001, "spill_s_max": 0.01,
}  # fmt: skip


async def retried(store, owner_of, keys, *, delay_s: float):
    """A task of each key that ran once and waits for its next attempt; its owner is gone."""
    ids = [one.id for one in await store.enqueue([a_task(ordering_key=key) for key in keys])]
    first = owner_of("first")
    await first.take([0])
    await until(lambda: sorted(first.ids) == ids)
    outcomes = [
        Outcome(task.id, task.version, Event.RETRIED, delay_s=delay_s) for task in first.grabbed
    ]
    assert all(await store.settle(outcomes, node=first.id))
    await first.kill()
    await store.leave([first.id])
    return ids


@pytest.mark.req("TASK-94")
async def test_an_elder_that_was_written_behind_its_siblings_goes_before_them(store, owner_of):
    """They fill the memory of their lane and are all refused, while it stands behind them."""
    (elder,) = await retried(store, owner_of, ["key"], delay_s=0.0)
    await enqueued(store, 100, ordering_key="key")
    owner = owner_of("second", **SMALL)
    owner.release()
    owner.store.may_grab.clear()
    intake = owner.dispatcher.intake
    await owner.take([0])
    await until(lambda: len(intake.stored) == 1)

    assert len((await store.submit_due(limit=10)).triggers) == 1
    await enqueued(store, 100, ordering_key="key")
    owner.dispatcher.hear(())  # a doorbell: nobody says whose elder it is
    await until(lambda: owner.store.appended[elder, 4] > 0 and elder not in intake.known)
    owner.store.may_grab.set()

    await until(lambda: len(owner.grabbed) == 201)
    assert owner.ids[0] == elder
    assert owner.ids == sorted(owner.ids)


@pytest.mark.req("FAIR-79")
async def test_many_keys_that_wait_for_their_elders_leave_room_for_the_others(store, owner_of):
    """More of them than memory has room for, if each lane keeps its first ones there."""
    keys = [f"key {number}" for number in range(80)]
    await retried(store, owner_of, keys, delay_s=3600.0)
    await store.enqueue([a_task(ordering_key=key) for key in keys for _ in range(5)])
    others = await enqueued(store, 300)
    owner = owner_of("second", **SMALL)
    owner.release()
    await owner.take([0])

    await until(lambda: len(owner.grabbed) == len(others))

    assert owner.ids == others
    assert len(owner.dispatcher.intake.table) <= SMALL["look_ahead"]


@pytest.mark.req("TASK-94")
async def test_an_elder_that_comes_in_lets_its_key_go_on_at_once(store, owner_of):
    """Its younger sibling was refused for it; nobody looks a second time."""
    (elder,) = await retried(store, owner_of, ["key"], delay_s=0.0)
    (younger,) = await enqueued(store, 1, ordering_key="key")
    owner = owner_of("second")
    owner.release()
    await owner.take([0])
    await until(lambda: owner.dispatcher.intake.table.elders.awaited == {"key": younger})

    assert len((await store.submit_due(limit=10)).triggers) == 1
    owner.dispatcher.hear(())  # a doorbell: nobody says whose elder it is

    await until(lambda: owner.ids == [elder, younger])


@pytest.mark.req("TASK-94")
async def test_an_elder_that_comes_in_while_its_sibling_is_refused_goes_on_at_once(store, owner_of):
    """The refusal is on its way back when the elder enters the table."""
    (elder,) = await retried(store, owner_of, ["key"], delay_s=0.0)
    (younger,) = await enqueued(store, 1, ordering_key="key")
    owner = owner_of("second")
    owner.release()
    refused, may_answer = asyncio.Event(), asyncio.Event()
    grab = owner.store.grab

    async def slow_grab(triggers: Any, **options: Any) -> Any:
        answer = await grab(triggers, **options)
        if answer.blocked:
            refused.set()
            await may_answer.wait()
        return answer

    owner.store.grab = slow_grab
    await owner.take([0])
    await refused.wait()

    assert len((await store.submit_due(limit=10)).triggers) == 1
    owner.dispatcher.hear(())
    await until(lambda: elder in owner.dispatcher.intake.known)
    may_answer.set()

    await until(lambda: owner.ids == [elder, younger])
