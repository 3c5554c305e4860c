"""What a store promises about tasks: enqueue, grab, settle, transaction, change, get."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from holdfast.ids import NodeId
from holdfast.store import Answer, Change, Store
from holdfast.task import Event, Key, Outcome, State, TaskId, Trigger
from holdfast.testing.contracts.builders import (
    NODE,
    OTHER,
    QUEUE,
    a_task,
    enqueued,
    eventually,
    grab,
    grabbed,
    look,
    settle,
    trigger_of,
    waiting_triggers,
)

NOBODY = TaskId(2**40)


class EnqueueContract:
    async def test_ids_rise_in_the_order_of_the_tasks(self, store: Store) -> None:
        first = await enqueued(store, *(a_task(payload=b"%d" % n) for n in range(50)))
        second = await enqueued(store, a_task(), a_task())

        assert first + second == sorted(set(first + second))
        found = await store.get(first)
        assert [found[id].payload for id in first] == [b"%d" % n for n in range(50)]

    async def test_a_new_task_is_submitted_at_version_one(self, store: Store) -> None:
        (answer,) = await store.enqueue(
            [a_task(priority=3, fairness_key="tenant", metadata=b"{}", ordering_key="order")]
        )

        task = await look(store, answer.id)
        assert answer.created and answer.state is State.SUBMITTED and answer.due_at is None
        assert (task.state, task.version, task.priority) == (State.SUBMITTED, 1, 3)
        assert (task.fairness_key, task.ordering_key) == ("tenant", "order")
        assert (task.payload, task.metadata) == (b"hello", b"{}")
        assert (task.attempts, task.deliveries, task.node) == (0, 0, None)

    async def test_no_tasks_give_no_answers(self, store: Store) -> None:
        assert await store.enqueue([]) == []

    async def test_a_delayed_task_waits_until_it_is_due(self, store: Store) -> None:
        (answer,) = await store.enqueue([a_task(delay_s=3600)])

        task = await look(store, answer.id)
        assert (answer.state, task.state) == (State.WAITING, State.WAITING)
        assert answer.due_at == task.due_at and answer.due_at is not None
        assert 3500 < (answer.due_at - task.enqueued_at).total_seconds() < 3700
        assert await waiting_triggers(store) == []

    async def test_a_due_time_beats_the_delay_and_one_in_the_past_is_now(
        self, store: Store
    ) -> None:
        later, past = datetime(2100, 1, 1, tzinfo=UTC), datetime(2000, 1, 1, tzinfo=UTC)

        first, second = await store.enqueue(
            [a_task(due_at=later, delay_s=1), a_task(due_at=past, delay_s=3600)]
        )

        assert (first.state, first.due_at) == (State.WAITING, later)
        assert (second.state, second.due_at) == (State.SUBMITTED, None)

    async def test_a_priority_outside_the_range_is_clamped(self, store: Store) -> None:
        low, high = await enqueued(store, a_task(priority=-3), a_task(priority=99))

        assert (await look(store, low)).priority == 0
        assert (await look(store, high)).priority == 9

    async def test_a_taken_key_answers_the_older_task_and_adds_the_others(
        self, store: Store
    ) -> None:
        key = Key("orders", "42")
        (first,) = await store.enqueue([a_task(key=key)])

        before, again, after = await store.enqueue([a_task(), a_task(key=key), a_task()])

        assert (again.id, again.created, again.state) == (first.id, False, State.SUBMITTED)
        assert before.created and after.created and before.id < after.id
        assert len(await waiting_triggers(store)) == 3

    async def test_the_same_key_twice_in_one_call_adds_one_task(self, store: Store) -> None:
        key = Key("orders", "42")

        first, second = await store.enqueue([a_task(key=key), a_task(key=key)])

        assert (first.created, second.created, second.id) == (True, False, first.id)

    async def test_keys_of_other_scopes_and_names_do_not_meet(self, store: Store) -> None:
        keys = [Key("a", "x"), Key("b", "x"), Key("a", "y"), None, None]

        answers = await store.enqueue([a_task(key=key) for key in keys])

        assert all(answer.created for answer in answers)

    async def test_a_key_is_free_again_when_its_period_has_passed(self, store: Store) -> None:
        key = Key("orders", "42", period_s=0.3)
        (first,) = await store.enqueue([a_task(key=key)])

        async def added() -> TaskId | None:
            (answer,) = await store.enqueue([a_task(key=key)])
            return answer.id if answer.created else None

        second = await eventually(added)
        assert second is not None and second > first.id

    async def test_a_key_without_a_period_lasts_as_long_as_its_task(self, store: Store) -> None:
        key = Key("orders", "42")
        kept, dropped = await grabbed(store, a_task(key=key), a_task(key=Key("orders", "43")))
        await settle(store, kept, Event.SUCCEEDED)
        await settle(store, dropped, Event.SUCCEEDED, keep=False)

        first, second = await store.enqueue([a_task(key=key), a_task(key=Key("orders", "43"))])

        assert (first.id, first.created, first.state) == (kept.id, False, State.DONE)
        assert second.created

    async def test_one_key_from_many_callers_at_once_adds_one_task(self, store: Store) -> None:
        task = a_task(key=Key("orders", "42"))

        calls = (store.enqueue([task]) for _ in range(8))
        answers = [answer for (answer,) in await asyncio.gather(*calls)]

        assert len({answer.id for answer in answers}) == 1
        assert [answer.created for answer in answers].count(True) == 1

    async def test_a_payload_of_eleven_megabytes_goes_through_unchanged(self, store: Store) -> None:
        payload = bytes(range(256)) * (11 * 4096)

        (task,) = await grabbed(store, a_task(payload=payload))
        await settle(store, task, Event.SUCCEEDED)

        assert len(payload) == 11 * 1024 * 1024
        assert task.payload == payload
        assert (await look(store, task.id)).payload == payload


class GrabContract:
    @pytest.mark.req("TASK-13")
    async def test_a_grab_at_another_version_fails_and_changes_nothing(self, store: Store) -> None:
        (id,) = await enqueued(store)
        trigger, before = await trigger_of(store, id), await look(store, id)

        for version in (0, 2, 7):
            assert await grab(store, [trigger._replace(version=version)]) == []

        assert await look(store, id) == before

    @pytest.mark.req("TASK-14")
    async def test_of_many_nodes_that_grab_at_once_exactly_one_wins(self, store: Store) -> None:
        (id,) = await enqueued(store)
        trigger = await trigger_of(store, id)
        nodes = [NodeId(f"node-{number}") for number in range(16)]

        won = await asyncio.gather(*(grab(store, [trigger], node) for node in nodes))

        winners = [node for node, tasks in zip(nodes, won, strict=True) if tasks]
        assert len(winners) == 1
        assert (await look(store, id)).node == winners[0]
        assert (await look(store, id)).deliveries == 1

    @pytest.mark.req("TASK-15")
    async def test_one_node_that_grabs_several_times_wins_only_the_first(
        self, store: Store
    ) -> None:
        (id,) = await enqueued(store)
        trigger = await trigger_of(store, id)

        won = [len(await grab(store, [trigger, trigger])) for _ in range(4)]

        assert won == [1, 0, 0, 0]

    @pytest.mark.req("TASK-19")
    async def test_a_grab_records_node_delivery_and_deadline(self, store: Store) -> None:
        (id,) = await enqueued(store)
        trigger = await trigger_of(store, id)

        (task,) = await grab(store, [trigger], deadlines_s={"email": 600.0})

        row = await look(store, id)
        assert (row.state, row.version, row.node) == (State.PROCESSING, 2, NODE)
        assert (row.deliveries, task.deliveries, task.attempt, task.version) == (1, 1, 1, 2)
        assert row.deadline_at is not None
        assert 590 < (row.deadline_at - row.enqueued_at).total_seconds() < 660

    async def test_a_grab_returns_what_the_handler_needs(self, store: Store) -> None:
        new = a_task(priority=2, partition=3, fairness_key="t", weight=2.5, metadata=b'{"a":1}')

        (task,) = await grabbed(store, new)

        assert (task.kind, task.payload, task.priority) == ("email", b"hello", 2)
        assert (task.queue, task.partition) == (QUEUE, 3)
        assert (task.fairness_key, task.weight) == ("t", 2.5)
        assert (task.ordering_key, task.metadata) == (None, b'{"a":1}')
        assert task.enqueued_at == (await look(store, task.id)).enqueued_at

    async def test_a_batch_takes_what_it_can_and_leaves_the_rest(self, store: Store) -> None:
        ids = await enqueued(store, *(a_task() for _ in range(5)))
        triggers = [await trigger_of(store, id) for id in ids]
        await grab(store, triggers[:1], OTHER)
        gone = triggers[0]._replace(id=NOBODY)
        stale = triggers[1]._replace(version=9)

        tasks = await grab(store, [gone, triggers[0], stale, *triggers[2:]])

        assert sorted(task.id for task in tasks) == ids[2:]

    async def test_a_repeated_grab_returns_the_same_tasks(self, store: Store) -> None:
        (id,) = await enqueued(store)
        trigger = await trigger_of(store, id)
        first = await grab(store, [trigger])

        assert await grab(store, [trigger], repeat=True) == first
        assert await grab(store, [trigger], OTHER, repeat=True) == []
        assert (await look(store, id)).deliveries == 1

    async def test_a_repeated_grab_does_not_return_what_moved_on(self, store: Store) -> None:
        (id,) = await enqueued(store)
        trigger = await trigger_of(store, id)
        (task,) = await grab(store, [trigger])
        await settle(store, task, Event.REPEATED)

        assert await grab(store, [trigger], repeat=True) == []

    async def test_an_empty_grab_takes_nothing(self, store: Store) -> None:
        assert await grab(store, []) == []


class SettleContract:
    @pytest.mark.req("TASK-16", "ALL-4")
    async def test_every_move_raises_the_version_by_one(self, store: Store) -> None:
        (task,) = await grabbed(store)
        versions = [task.version]
        await settle(store, task, Event.RETRIED)
        versions.append((await look(store, task.id)).version)
        (trigger,) = await eventually(lambda: _due(store))
        versions.append(trigger.version)
        await store.park({task.id: trigger.version}, "no handler")
        versions.append((await look(store, task.id)).version)
        for event in (Event.RESCHEDULED, Event.RESUMED, Event.CANCELLED):
            await store.change([Change(task.id, event, versions[-1])])
            versions.append((await look(store, task.id)).version)

        assert versions == [2, 3, 4, 5, 6, 7, 8]

    @pytest.mark.req("TASK-16", "ALL-4")
    async def test_every_operation_refuses_a_stale_version(self, store: Store) -> None:
        (task,) = await grabbed(store)
        stale = task._replace(version=task.version - 1)
        events = (Event.RESUMED, Event.RESCHEDULED, Event.CANCELLED, Event.GIVEN_UP)
        before = await look(store, task.id)

        assert not await settle(store, stale, Event.SUCCEEDED)
        assert await store.park({task.id: stale.version}, "stale") == []
        wishes = [Change(task.id, event, stale.version, force=True) for event in events]
        assert {changed.answer for changed in await store.change(wishes)} == {Answer.FAILED}
        assert await look(store, task.id) == before

    @pytest.mark.req("TASK-20")
    async def test_a_superseded_attempt_cannot_overwrite_the_newer_state(
        self, store: Store
    ) -> None:
        (old,) = await grabbed(store, node=NODE)
        (trigger,) = await store.resume_lost([NODE], deliveries_max=5, limit=10)
        (new,) = await grab(store, [trigger], OTHER)

        for event in (Event.SUCCEEDED, Event.RETRIED, Event.PARKED, Event.GIVEN_UP):
            assert not await settle(store, old, event, error="late")

        row = await look(store, old.id)
        assert (row.state, row.version, row.node) == (State.PROCESSING, new.version, OTHER)
        assert row.error is None

    async def test_a_finished_task_leaves_for_the_archive_with_its_result(
        self, store: Store
    ) -> None:
        (task,) = await grabbed(store, a_task(metadata=b"{}", fairness_key="t"))

        assert await settle(store, task, Event.SUCCEEDED, result=b"42")

        row = await look(store, task.id)
        assert (row.state, row.version, row.result) == (State.DONE, 3, b"42")
        assert (row.payload, row.metadata, row.fairness_key) == (b"hello", b"{}", "t")
        assert row.finished_at is not None and row.finished_at >= row.enqueued_at
        assert (row.deliveries, row.attempts) == (1, 0)
        assert (await store.counts())[State.DONE] == 1

    async def test_each_event_leads_to_its_state(self, store: Store) -> None:
        ends = {
            Event.SUCCEEDED: State.DONE,
            Event.RETRIED: State.WAITING,
            Event.REPEATED: State.SUBMITTED,
            Event.PARKED: State.ERROR,
            Event.GIVEN_UP: State.FAILED,
            Event.CANCELLED: State.CANCELLED,
        }
        tasks = await grabbed(store, *(a_task() for _ in ends))

        outcomes = [
            Outcome(task.id, task.version, event, delay_s=3600, error="why")
            for task, event in zip(tasks, ends, strict=True)
        ]
        assert await store.settle(outcomes, node=NODE) == [True] * len(ends)

        found = await store.get([task.id for task in tasks])
        assert [found[task.id].state for task in tasks] == list(ends.values())
        assert {found[task.id].error for task in tasks} == {"why"}

    async def test_a_task_that_is_not_kept_leaves_nothing(self, store: Store) -> None:
        (task,) = await grabbed(store)

        assert await settle(store, task, Event.SUCCEEDED, keep=False)

        assert await store.get([task.id]) == {}
        assert set((await store.counts()).values()) == {0}

    async def test_a_settle_may_be_repeated(self, store: Store) -> None:
        events = (Event.SUCCEEDED, Event.RETRIED, Event.REPEATED, Event.PARKED, Event.GIVEN_UP)
        tasks = await grabbed(store, *(a_task() for _ in events))
        outcomes = [
            Outcome(task.id, task.version, event, delay_s=3600)
            for task, event in zip(tasks, events, strict=True)
        ]

        first = await store.settle(outcomes, node=NODE)
        before = await store.get([task.id for task in tasks])

        assert first == await store.settle(outcomes, node=NODE) == [True] * len(events)
        assert await store.get([task.id for task in tasks]) == before

    async def test_a_repeat_by_another_node_or_with_another_outcome_is_refused(
        self, store: Store
    ) -> None:
        (task,) = await grabbed(store)
        done = Outcome(task.id, task.version, Event.SUCCEEDED)
        await store.settle([done], node=NODE)

        assert await store.settle([done], node=OTHER) == [False]
        assert not await settle(store, task, Event.GIVEN_UP)
        assert not await settle(store, task, Event.RETRIED)

    async def test_an_outcome_of_a_resumed_task_is_no_repeat(self, store: Store) -> None:
        (task,) = await grabbed(store)
        await store.resume_lost([NODE], deliveries_max=5, limit=10)

        assert not await settle(store, task, Event.REPEATED)

    async def test_a_retry_counts_an_attempt_unless_it_says_otherwise(self, store: Store) -> None:
        (task,) = await grabbed(store)
        attempts = [task.attempt]
        for fields in ({}, {"counts": False}, {}, {"resets": True}):
            await settle(store, task, Event.RETRIED, **fields)
            (trigger,) = await eventually(lambda: _due(store))
            (task,) = await grab(store, [trigger])
            attempts.append(task.attempt)

        assert attempts == [1, 2, 2, 3, 1]
        assert task.deliveries == 5

    @pytest.mark.req("TASK-91")
    async def test_what_is_submitted_again_arrives_again(self, store: Store) -> None:
        repeated, retried, lost, parked = await grabbed(store, *(a_task() for _ in "1234"))
        seen = (await store.arrivals(QUEUE, [], limit=1, exact=False)).horizon
        await settle(store, repeated, Event.REPEATED)
        await settle(store, retried, Event.RETRIED)
        await eventually(lambda: _due(store))
        await settle(store, parked, Event.PARKED)
        await store.change([Change(parked.id, Event.RESUMED)])
        await store.resume_lost([NODE], deliveries_max=9, limit=9)

        triggers = await waiting_triggers(store)
        assert {one.id for one in triggers} == {repeated.id, retried.id, lost.id, parked.id}
        assert all(one.arrived >= seen for one in triggers)


class TransactionContract:
    async def test_work_and_settle_commit_together(self, store: Store) -> None:
        (task,) = await grabbed(store)

        async with store.transaction(task, node=NODE) as transaction:
            outcome = Outcome(task.id, task.version, Event.SUCCEEDED, result=b"1")
            assert await transaction.settle(outcome)

        assert (await look(store, task.id)).state is State.DONE

    async def test_an_error_rolls_the_settle_back(self, store: Store) -> None:
        (task,) = await grabbed(store)
        before = await look(store, task.id)

        with pytest.raises(ZeroDivisionError):
            async with store.transaction(task, node=NODE) as transaction:
                await transaction.settle(Outcome(task.id, task.version, Event.SUCCEEDED))
                raise ZeroDivisionError

        assert await look(store, task.id) == before
        assert await settle(store, task, Event.PARKED)

    async def test_a_superseded_attempt_learns_it_inside_the_transaction(
        self, store: Store
    ) -> None:
        (task,) = await grabbed(store)
        await store.resume_lost([NODE], deliveries_max=5, limit=5)

        async with store.transaction(task, node=NODE) as transaction:
            assert not await transaction.settle(Outcome(task.id, task.version, Event.SUCCEEDED))

        assert (await look(store, task.id)).state is State.SUBMITTED

    async def test_transactions_follow_one_another(self, store: Store) -> None:
        tasks = await grabbed(store, *(a_task() for _ in range(4)))

        async def finish(number: int) -> bool:
            task = tasks[number]
            async with store.transaction(task, node=NODE) as transaction:
                await asyncio.sleep(0)
                return await transaction.settle(Outcome(task.id, task.version, Event.SUCCEEDED))

        assert await asyncio.gather(*map(finish, range(4))) == [True] * 4


class ChangeContract:
    @pytest.mark.req("TASK-82")
    async def test_a_wish_is_answered_by_what_became_of_it(self, store: Store) -> None:
        ids = await enqueued(store, a_task(), a_task(delay_s=60), a_task(), a_task())
        await store.park({ids[2]: 1}, "broken")
        wishes = [
            Change(ids[0], Event.CANCELLED, 1),
            Change(ids[1], Event.RESUMED, 1),
            Change(ids[2], Event.RESCHEDULED, 2, delay_s=60),
            Change(ids[3], Event.RESUMED, 1),
            Change(ids[3], Event.CANCELLED, 5),
            Change(NOBODY, Event.CANCELLED, 1),
        ]

        answers = [changed.answer for changed in await store.change(wishes)]

        ok, not_allowed = Answer.OK, Answer.NOT_ALLOWED
        assert answers == [ok, ok, ok, not_allowed, Answer.FAILED, Answer.NOT_FOUND]
        found = await store.get(ids)
        states = [State.CANCELLED, State.SUBMITTED, State.WAITING, State.SUBMITTED]
        assert [found[id].state for id in ids] == states

    @pytest.mark.req("TASK-82")
    async def test_a_running_task_is_resumed_only_with_force(self, store: Store) -> None:
        (task,) = await grabbed(store)

        (plain,) = await store.change([Change(task.id, Event.RESUMED, task.version)])
        (forced,) = await store.change([Change(task.id, Event.RESUMED, task.version, force=True)])

        assert (plain.answer, plain.trigger) == (Answer.NOT_ALLOWED, None)
        assert forced.answer is Answer.OK and forced.trigger is not None
        assert (forced.trigger.id, forced.trigger.version) == (task.id, task.version + 1)
        assert not await settle(store, task, Event.SUCCEEDED)
        assert await grab(store, [forced.trigger])

    async def test_a_finished_task_allows_no_wish(self, store: Store) -> None:
        (task,) = await grabbed(store)
        await settle(store, task, Event.SUCCEEDED)

        (now,) = await store.change([Change(task.id, Event.RESUMED)])
        (stale,) = await store.change([Change(task.id, Event.RESUMED, task.version)])

        assert (now.answer, stale.answer) == (Answer.NOT_ALLOWED, Answer.FAILED)

    async def test_cancelling_a_running_task_tells_its_node(self, store: Store) -> None:
        (task,) = await grabbed(store)

        (changed,) = await store.change([Change(task.id, Event.CANCELLED, error="by request")])

        assert changed.answer is Answer.OK and changed.trigger is not None
        assert (changed.trigger.id, changed.trigger.version) == (task.id, task.version + 1)
        row = await look(store, task.id)
        assert (row.state, row.error) == (State.CANCELLED, "by request")

    async def test_a_wish_without_a_version_takes_the_task_as_it_is(self, store: Store) -> None:
        (task,) = await grabbed(store)

        (changed,) = await store.change([Change(task.id, Event.GIVEN_UP, error="hopeless")])

        assert changed.answer is Answer.OK
        row = await look(store, task.id)
        assert (row.state, row.version, row.error) == (State.FAILED, 3, "hopeless")


async def _due(store: Store) -> list[Trigger]:
    return (await store.submit_due(limit=10)).triggers
