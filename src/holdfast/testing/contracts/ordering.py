"""Tasks of one ordering key: one at a time, in the order of their ids."""

from __future__ import annotations

import pytest

from holdfast.store import Change, Store
from holdfast.task import Event, NewTask
from holdfast.testing.contracts.builders import (
    NODE,
    OTHER,
    QUEUE,
    a_task,
    claimed,
    enqueued,
    grab,
    look,
    settle,
    trigger_of,
)


class OrderingContract:
    @pytest.mark.req("TASK-94")
    async def test_a_late_trigger_of_the_elder_never_lets_the_younger_run_first(
        self, store: Store
    ) -> None:
        epochs = await claimed(store)
        elder, younger = await enqueued(store, _ordered(), _ordered())
        second = await trigger_of(store, younger)

        answer = await store.grab([second], node=NODE, deadlines_s={}, epochs=epochs)

        assert (answer.tasks, answer.blocked, answer.undecided) == ([], [younger], [])
        assert answer.elders == [await trigger_of(store, elder)]
        assert (await look(store, younger)).version == 1
        (task,) = await grab(store, [await trigger_of(store, elder)], epochs=epochs)
        assert await grab(store, [second], epochs=epochs) == []
        await settle(store, task, Event.SUCCEEDED)
        assert [one.id for one in await grab(store, [second], epochs=epochs)] == [younger]

    @pytest.mark.req("TASK-94")
    async def test_a_retrying_head_blocks_its_key(self, store: Store) -> None:
        epochs = await claimed(store)
        elder, younger = await enqueued(store, _ordered(), _ordered())
        (task,) = await grab(store, [await trigger_of(store, elder)], epochs=epochs)
        await settle(store, task, Event.RETRIED, delay_s=3600, counts=False)

        second = await trigger_of(store, younger)
        answer = await store.grab([second], node=NODE, deadlines_s={}, epochs=epochs)

        assert (answer.tasks, answer.blocked, answer.elders) == ([], [younger], [])

    @pytest.mark.req("TASK-94")
    async def test_an_elder_in_error_blocks_by_default_and_is_skipped_by_choice(
        self, store: Store
    ) -> None:
        epochs = await claimed(store)
        elder, younger = await enqueued(store, _ordered(), _ordered())
        await store.park({elder: 1}, "broken")
        second = await trigger_of(store, younger)

        blocked = await store.grab([second], node=NODE, deadlines_s={}, epochs=epochs)
        skipped = await grab(store, [second], epochs=epochs, skip_errors_of=["email"])

        assert (blocked.tasks, blocked.blocked) == ([], [younger])
        assert [task.id for task in skipped] == [younger]

    async def test_of_siblings_in_one_grab_only_the_eldest_is_taken(self, store: Store) -> None:
        epochs = await claimed(store)
        ids = await enqueued(store, _ordered(), _ordered(), _ordered(), _ordered("other"))
        triggers = [await trigger_of(store, id) for id in reversed(ids)]

        answer = await store.grab(triggers, node=NODE, deadlines_s={}, epochs=epochs)

        assert sorted(task.id for task in answer.tasks) == [ids[0], ids[3]]
        assert (sorted(answer.blocked), answer.elders) == (ids[1:3], [])

    async def test_a_grab_names_the_eldest_that_stands_before_those_it_refused(
        self, store: Store
    ) -> None:
        epochs = await claimed(store)
        ids = await enqueued(store, *[_ordered() for _ in range(4)], *[_ordered("other")] * 2)
        triggers = [await trigger_of(store, ids[n]) for n in (2, 3, 5)]

        answer = await store.grab(triggers, node=NODE, deadlines_s={}, epochs=epochs)

        assert sorted(answer.blocked) == [ids[2], ids[3], ids[5]]
        assert sorted(one.id for one in answer.elders) == [ids[0], ids[4]]

    async def test_an_elder_that_its_caller_delayed_does_not_block(self, store: Store) -> None:
        epochs = await claimed(store)
        _, younger = await enqueued(store, _ordered(delay_s=3600), _ordered())

        assert await grab(store, [await trigger_of(store, younger)], epochs=epochs)

    async def test_a_younger_sibling_that_runs_blocks_the_elder_that_woke(
        self, store: Store
    ) -> None:
        epochs = await claimed(store)
        elder, younger = await enqueued(store, _ordered(delay_s=3600), _ordered())
        await grab(store, [await trigger_of(store, younger)], epochs=epochs)
        await store.change([Change(elder, Event.RESUMED)])

        first = await trigger_of(store, elder)
        answer = await store.grab([first], node=NODE, deadlines_s={}, epochs=epochs)

        assert answer.blocked == [elder]

    @pytest.mark.req("TASK-93")
    async def test_a_repeated_grab_returns_what_it_took_though_the_partition_has_a_new_owner(
        self, store: Store
    ) -> None:
        old = await claimed(store)
        (id,) = await enqueued(store, _ordered())
        trigger = await trigger_of(store, id)
        first = await grab(store, [trigger], epochs=old)
        await store.let_go(QUEUE, list(old), node=NODE)
        new = await claimed(store, OTHER)

        assert await grab(store, [trigger], epochs=old, repeat=True) == first
        assert await grab(store, [trigger], OTHER, epochs=new, repeat=True) == []
        assert (await look(store, id)).deliveries == 1

    async def test_an_ordering_key_needs_the_epoch_of_its_partition(self, store: Store) -> None:
        old = await claimed(store)
        (id,) = await enqueued(store, _ordered())
        trigger = await trigger_of(store, id)
        await store.let_go(QUEUE, list(old), node=NODE)
        new = await claimed(store, OTHER)

        for epochs in ({}, old):
            answer = await store.grab([trigger], node=NODE, deadlines_s={}, epochs=epochs)
            assert (answer.tasks, answer.blocked) == ([], [])
        assert await grab(store, [trigger], OTHER, epochs=new)


def _ordered(ordering_key: str = "order-1", **changes: object) -> NewTask:
    return a_task(ordering_key=ordering_key, **changes)
