"""What a store keeps of attempts: whose they were, what they said, and until when."""

from __future__ import annotations

import pytest

from holdfast.store import Answer, Change, Store
from holdfast.task import WISHES, Event, Grabbed, Outcome, State
from holdfast.testing.contracts.builders import (
    NODE,
    OTHER,
    a_task,
    enqueued,
    eventually,
    grab,
    grabbed,
    look,
    settle,
    trigger_of,
)


class RecordsContract:
    async def test_nobody_may_wish_for_a_move_of_the_engine(self, store: Store) -> None:
        (running,) = await grabbed(store)
        ids = [running.id, *await enqueued(store, a_task(), a_task(delay_s=3600))]
        before = await store.get(ids)
        wishes = [Change(id, event, force=True) for id in ids for event in set(Event) - WISHES]

        answers = {changed.answer for changed in await store.change(wishes)}

        assert answers == {Answer.NOT_ALLOWED}
        assert await store.get(ids) == before

    @pytest.mark.parametrize("event", [Event.SUCCEEDED, Event.REPEATED, Event.PARKED])
    async def test_the_last_error_is_kept_by_an_outcome_without_one(
        self, store: Store, event: Event
    ) -> None:
        (first,) = await grabbed(store)
        await settle(store, first, Event.REPEATED, error="the first failed")
        (second,) = await grab(store, [await trigger_of(store, first.id)])

        assert await settle(store, second, event)

        assert (await look(store, first.id)).error == "the first failed"

    async def test_what_does_not_run_any_more_has_no_node(self, store: Store) -> None:
        retried, parked, cancelled = await grabbed(store, a_task(), a_task(), a_task())
        await settle(store, retried, Event.RETRIED)
        await eventually(lambda: _submitted(store))
        await store.park({parked.id: parked.version}, "no handler")
        await store.change([Change(cancelled.id, Event.CANCELLED)])

        found = await store.get([retried.id, parked.id, cancelled.id])

        states = {task.state: task.node for task in found.values()}
        assert states == dict.fromkeys([State.SUBMITTED, State.ERROR, State.CANCELLED])

    @pytest.mark.parametrize("event", [Event.SUCCEEDED, Event.RETRIED])
    async def test_an_outcome_is_of_the_node_that_recorded_it(
        self, store: Store, event: Event
    ) -> None:
        one, two = await grabbed(store, a_task(), a_task(), node=NODE)
        outcome = Outcome(one.id, one.version, event)
        assert await store.settle([outcome], node=OTHER) == [True]
        await _settled_within(store, two, event)

        assert {(await look(store, task.id)).node for task in (one, two)} == {OTHER}
        assert await store.settle([outcome], node=OTHER) == [True], "its own, repeated"
        assert await store.settle([outcome], node=NODE) == [False]

    async def test_a_repeated_grab_leaves_the_deadline_as_it_was(self, store: Store) -> None:
        (id,) = await enqueued(store)
        trigger = await trigger_of(store, id)
        first = await grab(store, [trigger], deadlines_s={"email": 600.0})
        before = await look(store, id)

        assert await grab(store, [trigger], deadlines_s={"email": 60.0}, repeat=True) == first

        assert await look(store, id) == before


async def _submitted(store: Store) -> bool:
    return bool((await store.submit_due(limit=10)).triggers)


async def _settled_within(store: Store, task: Grabbed, event: Event) -> None:
    async with store.transaction(task, node=OTHER) as transaction:
        assert await transaction.settle(Outcome(task.id, task.version, event))
