"""What a store promises to the duties, the coordinator and the people who search."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from holdfast.ids import NodeId
from holdfast.ring import Kept
from holdfast.store import (
    Change,
    Entry,
    Filter,
    Level,
    Overdue,
    Position,
    Record,
    Store,
)
from holdfast.task import Event, Key, State, TaskId, Trigger
from holdfast.testing.contracts.builders import (
    NODE,
    OTHER,
    QUEUE,
    a_task,
    claimed,
    enqueued,
    eventually,
    grab,
    grabbed,
    look,
    settle,
    trigger_of,
    waiting_triggers,
)


class LeasesContract:
    async def test_a_renewed_lease_makes_a_live_member(self, store: Store) -> None:
        await store.renew(NODE, lease_s=60, queues=["a", "b"], kinds=["email"])
        await store.renew(NODE, lease_s=60, queues=["a"], kinds=["email", "sms"])

        (member,) = await store.members()

        assert (member.node, member.is_alive) == (NODE, True)
        assert (member.queues, member.kinds) == (("a",), ("email", "sms"))

    async def test_a_lease_ends_by_itself_and_can_be_renewed(self, store: Store) -> None:
        await store.renew(NODE, lease_s=0.2, queues=[], kinds=[])

        async def ended() -> bool:
            return [member.is_alive for member in await store.members()] == [False]

        assert await eventually(ended)
        await store.renew(NODE, lease_s=60, queues=[], kinds=[])
        assert [member.is_alive for member in await store.members()] == [True]

    async def test_leaving_gives_up_lease_and_partitions_at_once(self, store: Store) -> None:
        for node in (NODE, OTHER):
            await store.renew(node, lease_s=60, queues=[QUEUE], kinds=[])
        await claimed(store)

        await store.leave([NODE])

        assert [member.node for member in await store.members()] == [OTHER]
        assert {holding.owner for holding in await store.holdings(QUEUE)} == {None}
        assert len(await claimed(store, OTHER)) == store.partitions

    @pytest.mark.req("RING-9", "RING-10")
    async def test_a_node_keeps_its_number_and_no_two_have_the_same(self, store: Store) -> None:
        nodes = [NodeId(f"node-{number}") for number in range(12)]

        async def renewed(node: NodeId) -> None:
            await store.renew(node, lease_s=60, queues=[], kinds=[])

        await asyncio.gather(*(renewed(node) for node in nodes))
        first = {member.node: member.number for member in await store.members()}
        await asyncio.gather(*(renewed(node) for node in nodes))

        assert sorted(number or 0 for number in first.values()) == list(range(1, 13))
        assert {member.node: member.number for member in await store.members()} == first
        await renewed(NODE)
        assert max(member.number or 0 for member in await store.members()) == 13

    @pytest.mark.req("RING-11")
    async def test_a_forgotten_node_registers_anew(self, store: Store) -> None:
        for node in (NODE, OTHER):
            await store.renew(node, lease_s=0.05, queues=[], kinds=[])

        async def ended() -> bool:
            return not any(member.is_alive for member in await store.members())

        assert await eventually(ended)
        await store.leave([NODE], ended_only=True)
        assert [member.node for member in await store.members()] == [OTHER]
        await store.renew(NODE, lease_s=60, queues=[], kinds=[])

        numbers = {member.node: member.number for member in await store.members()}
        assert numbers == {OTHER: 2, NODE: 3}

    async def test_a_member_tells_of_itself_and_hears_what_is_asked(self, store: Store) -> None:
        facts = {"host": "alpha", "pid": 4711, "stuck": {"email": "retry"}}
        await store.renew(NODE, lease_s=60, queues=[], kinds=[], facts=facts)

        assert await store.ask(NODE, "drain")
        assert not await store.ask(OTHER, "drain")
        await store.renew(NODE, lease_s=60, queues=[], kinds=[], facts=facts)

        (member,) = await store.members()
        assert (member.facts, member.asked) == (facts, "drain")
        assert 50 < member.left_s <= 60
        assert member.started_at is not None
        await store.ask(NODE, None)
        assert (await store.members())[0].asked is None

    async def test_a_look_tells_what_the_single_questions_tell_after_each_change(
        self, store: Store
    ) -> None:
        async def is_the_same() -> None:
            look = await store.look([QUEUE, "other"])
            assert look.holdings[QUEUE] == await store.holdings(QUEUE)
            assert look.holdings["other"] == await store.holdings("other")
            assert [one[:3] for one in look.duties] == [one[:3] for one in await store.duties()]
            members = [(one.node, one.is_alive, one.number) for one in await store.members()]
            assert [(one.node, one.is_alive, one.number) for one in look.members] == members
            assert look.rules_version == await store.rules_version()

        await is_the_same()
        await store.renew(NODE, lease_s=60, queues=[QUEUE], kinds=[])
        await is_the_same()
        epochs = await claimed(store)
        await is_the_same()
        await store.wish(QUEUE, [0], node=OTHER)
        await store.let_go(QUEUE, list(epochs)[:2], node=NODE)
        await is_the_same()
        await store.keep_duties([Kept("waker", 0, 60)], node=NODE)
        await is_the_same()
        await store.change_rules(QUEUE, weights={"a": 2.0})
        await is_the_same()
        await store.leave([NODE])
        await is_the_same()

    async def test_a_dead_node_has_no_lease_partition_or_duty_from_now_on(
        self, store: Store
    ) -> None:
        for node in (NODE, OTHER):
            await store.renew(node, lease_s=60, queues=[QUEUE], kinds=[])
        await claimed(store)
        (task,) = await grabbed(store)
        await store.keep_duties([Kept("waker", 0, 60)], node=NODE)

        await store.end([NODE])
        await store.end([NODE])

        alive = {member.node: member.is_alive for member in await store.members()}
        assert alive == {NODE: False, OTHER: True}
        assert {holding.owner for holding in await store.holdings(QUEUE)} == {None}
        (duty,) = await store.duties()
        assert (duty.holder, duty.due_in_s <= 0) == (None, True)
        resumed = await store.resume_lost([NODE, OTHER], deliveries_max=3, limit=10)
        assert [trigger.id for trigger in resumed] == [task.id]


class DutiesContract:
    async def test_a_duty_has_one_record_for_each_number(self, store: Store) -> None:
        assert await store.duties() == []
        assert await store.keep_duties([Kept("waker", 1, 5)], node=NODE) == set()
        assert await store.keep_duties([Kept("waker", 0, 5)], node=NODE) == {"waker"}
        assert await store.keep_duties([Kept("waker", 0, 5)], node=OTHER) == set()

        both = [Kept("cleaner", 0, 60), Kept("waker", 1, 7)]
        assert await store.keep_duties(both, node=OTHER) == {"cleaner", "waker"}
        assert await store.keep_duties([Kept("waker", 1, 5)], node=NODE) == set()

        cleaner, waker = await store.duties()
        assert cleaner[:3] == ("cleaner", 1, OTHER)
        assert waker[:3] == ("waker", 2, OTHER)
        assert 5 < waker.due_in_s <= 7
        assert await store.keep_duties([], node=NODE) == set()

    async def test_of_many_who_take_a_duty_at_once_one_wins(self, store: Store) -> None:
        nodes = [NodeId(f"node-{number}") for number in range(5)]
        for number in range(4):
            answers = await asyncio.gather(
                *(store.keep_duties([Kept("waker", number, 1)], node=node) for node in nodes)
            )

            assert sorted(answers, key=len) == [set(), set(), set(), set(), {"waker"}]
            (duty,) = await store.duties()
            winner = nodes[answers.index({"waker"})]
            assert duty[:3] == ("waker", number + 1, winner)

    async def test_who_leaves_gives_up_its_duties(self, store: Store) -> None:
        await store.renew(NODE, lease_s=60, queues=[], kinds=[])
        await store.keep_duties([Kept("waker", 0, 60), Kept("cleaner", 0, 60)], node=NODE)
        await store.keep_duties([Kept("cleaner", 1, 60)], node=OTHER)

        await store.leave([NODE])

        cleaner, waker = await store.duties()
        assert (cleaner.holder, waker.holder) == (OTHER, None)
        assert waker.due_in_s <= 0
        assert await store.keep_duties([Kept("waker", 1, 5)], node=OTHER) == {"waker"}


class WakerContract:
    async def test_a_task_is_submitted_when_it_is_due_and_not_before(self, store: Store) -> None:
        soon, later = await enqueued(store, a_task(delay_s=0.3), a_task(delay_s=3600))

        async def submitted() -> list[TaskId]:
            due = await store.submit_due(limit=10)
            return [trigger.id for trigger in due.triggers]

        assert await eventually(submitted) == [soon]
        task = await look(store, soon)
        assert (task.state, task.version) == (State.SUBMITTED, 2)
        assert [one.id for one in await waiting_triggers(store)] == [soon]
        assert (await look(store, later)).state is State.WAITING

    @pytest.mark.req("TASK-74")
    async def test_more_due_tasks_than_one_batch_are_all_submitted_oldest_first(
        self, store: Store
    ) -> None:
        delays_s = (0.05, 0.01, 0.04, 0.02, 0.03)
        ids = await enqueued(store, *(a_task(delay_s=delay_s) for delay_s in delays_s))
        await eventually(lambda: _all_are_due(store, ids))

        batches = [[one.id for one in (await store.submit_due(limit=2)).triggers] for _ in range(4)]

        assert batches == [[ids[1], ids[3]], [ids[4], ids[2]], [ids[0]], []]

    async def test_the_waker_learns_when_to_look_again(self, store: Store) -> None:
        (late,) = await enqueued(store, a_task(delay_s=7200, partition=1))
        (early,) = await enqueued(store, a_task(delay_s=3600, queue="else"))

        due = await store.submit_due(limit=10)

        assert (due.triggers, due.next_due_at) == ([], (await look(store, early)).due_at)
        await store.change([Change(id, Event.CANCELLED) for id in (late, early)])
        assert (await store.submit_due(limit=10)).next_due_at is None


class ResumerContract:
    async def test_what_a_lost_node_ran_is_submitted_again(self, store: Store) -> None:
        mine, other = await grabbed(store, a_task(), a_task(kind="sms"))
        (foreign,) = await grabbed(store, node=OTHER)
        await settle(store, other, Event.SUCCEEDED)

        (trigger,) = await store.resume_lost([NODE], deliveries_max=3, limit=10)

        assert (trigger.id, trigger.version) == (mine.id, mine.version + 1)
        row = await look(store, mine.id)
        assert (row.state, row.node, row.attempts) == (State.SUBMITTED, None, 0)
        assert (await look(store, foreign.id)).state is State.PROCESSING
        assert await store.resume_lost([NODE], deliveries_max=3, limit=10) == []

    async def test_a_live_lease_keeps_its_tasks(self, store: Store) -> None:
        await grabbed(store)
        await store.renew(NODE, lease_s=60, queues=[], kinds=[])

        assert await store.resume_lost([NODE], deliveries_max=3, limit=10) == []

    async def test_a_task_lost_too_often_is_parked_with_a_note(self, store: Store) -> None:
        (task,) = await grabbed(store)
        (trigger,) = await store.resume_lost([NODE], deliveries_max=2, limit=10)
        await grab(store, [trigger])

        assert await store.resume_lost([NODE], deliveries_max=2, limit=10) == []

        row = await look(store, task.id)
        assert (row.state, row.deliveries) == (State.ERROR, 2)
        assert row.error

    async def test_a_delivery_with_an_outcome_is_no_loss(self, store: Store) -> None:
        (task,) = await grabbed(store)
        await settle(store, task, Event.REPEATED)
        await grab(store, [await trigger_of(store, task.id)])

        (trigger,) = await store.resume_lost([NODE], deliveries_max=2, limit=10)

        assert trigger.id == task.id

    async def test_a_grabbed_task_says_how_often_it_was_lost(self, store: Store) -> None:
        epochs = await claimed(store)
        await enqueued(store, a_task(), a_task(ordering_key="k"))
        triggers = await waiting_triggers(store)

        counted = []
        for _ in range(3):
            tasks = await grab(store, triggers, epochs=epochs)
            again = await grab(store, triggers, epochs=epochs, repeat=True)
            counted += [{(task.deliveries, task.losses) for task in (*tasks, *again)}]
            assert len(tasks) == len(again) == 2
            triggers = await store.resume_lost([NODE], deliveries_max=5, limit=10)

        assert counted == [{(1, 0)}, {(2, 1)}, {(3, 2)}]

    async def test_only_an_outcome_that_forgives_ends_the_counting_of_losses(
        self, store: Store
    ) -> None:
        await grabbed(store, a_task())
        (trigger,) = await store.resume_lost([NODE], deliveries_max=5, limit=10)

        losses = []
        for forgives in (False, False, True):
            (task,) = await grab(store, [trigger])
            await settle(store, task, Event.REPEATED, counts=False, forgives=forgives)
            trigger = await trigger_of(store, task.id)
            losses.append(task.losses)
        (task,) = await grab(store, [trigger])

        assert [*losses, task.losses] == [1, 1, 1, 0]

    async def test_a_wish_of_a_person_ends_the_counting_of_losses(self, store: Store) -> None:
        await grabbed(store, a_task())
        (trigger,) = await store.resume_lost([NODE], deliveries_max=5, limit=10)
        await store.park({trigger.id: trigger.version}, "look")
        await store.change([Change(trigger.id, Event.RESUMED)])

        (task,) = await grab(store, [await trigger_of(store, trigger.id)])

        assert task.losses == 0

    async def test_a_resumer_takes_no_more_than_its_limit(self, store: Store) -> None:
        await grabbed(store, *(a_task() for _ in range(5)))

        counts = [len(await store.resume_lost([NODE], deliveries_max=3, limit=2)) for _ in range(4)]

        assert counts == [2, 2, 1, 0]

    async def test_a_node_learns_what_it_runs_unknowingly_and_what_moved_on(
        self, store: Store
    ) -> None:
        known, unknown, done = await grabbed(store, a_task(), a_task(), a_task())
        await grabbed(store, node=OTHER)
        await settle(store, done, Event.SUCCEEDED)
        held = {known.id: known.version, done.id: done.version, TaskId(2**40): 2}

        running = await store.running_of(NODE)

        assert {(row.id, row.version, row.node) for row in running} == {
            (known.id, known.version, NODE),
            (unknown.id, unknown.version, NODE),
        }
        assert sorted(await store.moved_on(NODE, held)) == [done.id, TaskId(2**40)]
        assert await store.moved_on(NODE, {known.id: known.version + 1}) == [known.id]
        assert await store.moved_on(OTHER, {known.id: known.version}) == [known.id]
        assert await store.moved_on(NODE, {}) == []

    @pytest.mark.req("TASK-70", "TASK-73")
    async def test_a_submitted_task_that_nobody_takes_in_is_triggered_again_at_its_version(
        self, store: Store
    ) -> None:
        await store.holdings(QUEUE)
        (lost,) = await enqueued(store, a_task())

        async def triggers() -> list[Trigger]:
            return await store.submit_overdue(deadline_s=0.3, limit=10)

        assert await triggers() == []
        (again,) = await eventually(triggers)
        assert (again.id, again.version) == (lost, 1)
        assert await triggers() == [], "it has a new deadline"
        (later,) = await eventually(triggers)
        assert (later.id, later.version) == (lost, 1)
        assert (await look(store, lost)).version == 1

    @pytest.mark.req("TASK-70")
    async def test_what_stands_in_the_backlog_is_never_overdue(self, store: Store) -> None:
        epochs = await claimed(store)
        await enqueued(store, a_task())
        (trigger,) = await waiting_triggers(store)
        position = Position(trigger.arrived, trigger.id)
        entry = Entry(Level(1, 1), trigger)
        await store.record(
            QUEUE,
            [Record(partition=0, epoch=epochs[0], entries=[entry], position=position)],
        )
        (above,) = await enqueued(store, a_task())

        async def late() -> list[TaskId]:
            return [one.id for one in await store.submit_overdue(deadline_s=0.01, limit=10)]

        assert await eventually(late) == [above]

    async def test_a_task_that_has_moved_gets_its_deadline_at_the_first_look(
        self, store: Store
    ) -> None:
        await store.holdings(QUEUE)
        (task,) = await grabbed(store)
        await settle(store, task, Event.REPEATED)
        await asyncio.sleep(0.06)

        assert await store.submit_overdue(deadline_s=0.05, limit=10) == []
        assert (await look(store, task.id)).deadline_at is not None

        async def triggers() -> list[Trigger]:
            return await store.submit_overdue(deadline_s=0.05, limit=10)

        (again,) = await eventually(triggers)
        assert (again.id, again.version) == (task.id, task.version + 1)

    @pytest.mark.req("TASK-75")
    async def test_a_processing_task_past_its_deadline_is_resumed_or_postponed(
        self, store: Store
    ) -> None:
        await store.renew(NODE, lease_s=60, queues=[], kinds=[])
        slow, _ = await grabbed(store, a_task(), a_task(kind="sms"), deadlines_s={"email": 0.05})

        async def late() -> list[Overdue]:
            return await store.overdue(limit=10)

        (found,) = await eventually(late)
        assert found[:5] == (slow.id, slow.version, QUEUE, "email", NODE)
        assert 0 < found.late_s < 30
        await store.postpone({slow.id: slow.version}, deadline_s=60)
        assert await store.overdue(limit=10) == []
        await store.postpone({slow.id: slow.version}, deadline_s=-1)
        assert len(await store.overdue(limit=10)) == 1

        assert await store.resume_overdue({slow.id: slow.version + 1}, deliveries_max=3) == []
        (again,) = await store.resume_overdue({slow.id: slow.version}, deliveries_max=3)

        assert (again.id, again.version) == (slow.id, slow.version + 1)
        assert await store.overdue(limit=10) == []
        assert not await settle(store, slow, Event.SUCCEEDED)
        await grab(store, [again])
        assert await store.resume_overdue({slow.id: again.version + 1}, deliveries_max=2) == []
        assert (await look(store, slow.id)).state is State.ERROR

    async def test_tasks_are_parked_at_the_versions_named(self, store: Store) -> None:
        (running,) = await grabbed(store)
        submitted, stale, waiting = await enqueued(store, a_task(), a_task(), a_task(delay_s=60))
        named = {running.id: running.version, submitted: 1, stale: 2, waiting: 1}

        moved = await store.park(named, "no handler")

        assert sorted(moved) == [running.id, submitted]
        row = await look(store, submitted)
        assert (row.state, row.version, row.error) == (State.ERROR, 2, "no handler")
        assert (await look(store, stale)).state is State.SUBMITTED
        assert not await settle(store, running, Event.SUCCEEDED)


class CleanerContract:
    async def archived_earlier(self, store: Store, ids: Sequence[TaskId], days: float) -> None:
        """Make archived tasks look as if they had finished days ago; a store's own affair."""
        pytest.skip("this store's suite does not say how to age its archive")

    @pytest.mark.req("TASK-69")
    async def test_only_old_finished_tasks_are_cleaned(self, store: Store) -> None:
        old, young, _, parked = await grabbed(store, *(a_task() for _ in "1234"))
        await settle(store, old, Event.SUCCEEDED)
        await settle(store, young, Event.SUCCEEDED)
        await settle(store, parked, Event.PARKED)
        await enqueued(store, a_task(), a_task(delay_s=60))
        await self.archived_earlier(store, [old.id], days=40)

        await store.clean(keep_days=30, limit=1000)

        assert await store.get([old.id]) == {}
        states = sorted(task.state for task in await store.find(Filter()))
        assert states == [State.WAITING, State.SUBMITTED, State.PROCESSING, State.DONE, State.ERROR]

    @pytest.mark.req("TASK-76")
    async def test_tasks_in_error_are_never_cleaned_and_others_go_with_key_and_payload(
        self, store: Store
    ) -> None:
        keys = [Key("orders", f"{number}") for number in range(4)]
        tasks = await grabbed(store, *(a_task(key=key) for key in keys))
        await settle(store, tasks[0], Event.PARKED, error="broken")
        for task in tasks[1:]:
            await settle(store, task, Event.SUCCEEDED)
        await self.archived_earlier(store, [task.id for task in tasks[1:]], days=40)

        while await store.clean(keep_days=30, limit=2):
            pass

        assert list(await store.get([task.id for task in tasks])) == [tasks[0].id]
        assert (await look(store, tasks[0].id)).payload == b"hello"
        again = await store.enqueue([a_task(key=key) for key in keys])
        assert [answer.created for answer in again] == [False, True, True, True]

    async def test_a_key_goes_with_its_task(self, store: Store) -> None:
        key = Key("orders", "42")
        (task,) = await grabbed(store, a_task(key=key))
        await settle(store, task, Event.SUCCEEDED)
        await self.archived_earlier(store, [task.id], days=40)

        await store.clean(keep_days=30, limit=1000)

        (answer,) = await store.enqueue([a_task(key=key)])
        assert answer.created


class SearchContract:
    async def test_a_list_is_filtered_by_any_of_several_values(self, store: Store) -> None:
        ids = await enqueued(
            store,
            a_task(fairness_key="a"),
            a_task(kind="sms", fairness_key="b"),
            a_task(queue="else"),
            a_task(delay_s=60),
        )

        async def found(**values: object) -> list[int]:
            tasks = await store.find(Filter(**values))  # type: ignore[arg-type]
            return [ids.index(task.id) for task in tasks]

        assert await found() == [0, 1, 2, 3]
        assert await found(kinds=["sms", "email"], queues=[QUEUE]) == [0, 1, 3]
        assert await found(fairness_keys=["a", "b"]) == [0, 1]
        assert await found(states=[State.WAITING]) == [3]
        assert await found(states=[State.SUBMITTED, State.WAITING], queues=["else"]) == [2]
        assert await found(states=[State.ERROR]) == []

    async def test_a_list_goes_on_page_by_page_through_hot_and_archived_tasks(
        self, store: Store
    ) -> None:
        tasks = await grabbed(store, *(a_task() for _ in range(7)))
        for task in tasks[::2]:
            await settle(store, task, Event.SUCCEEDED)
        await store.park({tasks[1].id: tasks[1].version}, "broken")

        seen, after = [], None
        while page := await store.find(Filter(after=after, limit=3)):
            seen += [task.id for task in page]
            after = page[-1].id

        assert seen == [task.id for task in tasks]
        (parked,) = await store.find(Filter(states=[State.ERROR]))
        assert (parked.id, parked.error) == (tasks[1].id, "broken")
        assert len(await store.find(Filter(states=[State.DONE, State.ERROR]))) == 5

    async def test_a_queue_is_unknown_until_a_node_has_served_it(self, store: Store) -> None:
        await enqueued(store, a_task(queue="a"), a_task(queue="b"), a_task(queue="b"))
        await enqueued(store, a_task(queue="c", delay_s=60))
        await store.holdings("a")
        await store.submit_overdue(deadline_s=-1.0, limit=10)  # a look makes none known

        assert await store.unknown_queues() == ["b"]

    async def test_counts_cover_hot_and_archived_tasks(self, store: Store) -> None:
        tasks = await grabbed(store, *(a_task() for _ in range(4)))
        for task, event in zip(
            tasks, (Event.SUCCEEDED, Event.GIVEN_UP, Event.PARKED), strict=False
        ):
            await settle(store, task, event)
        await enqueued(store, a_task(), a_task(), a_task(delay_s=60))

        counts = await store.counts()

        assert {state: counts.get(state, 0) for state in State} == {
            State.WAITING: 1,
            State.SUBMITTED: 2,
            State.PROCESSING: 1,
            State.DONE: 1,
            State.ERROR: 1,
            State.FAILED: 1,
            State.CANCELLED: 0,
        }

    async def test_unknown_ids_are_missing_from_the_answer(self, store: Store) -> None:
        (id,) = await enqueued(store)

        assert list(await store.get([id, TaskId(2**40)])) == [id]
        assert await store.get([]) == {}


class LifeContract:
    async def test_migrating_twice_changes_nothing(self, store: Store) -> None:
        (id,) = await enqueued(store)

        assert await store.migrate() == await store.migrate()

        assert (await look(store, id)).state is State.SUBMITTED

    async def test_the_store_says_what_durability_rests_on(self, store: Store) -> None:
        settings = await store.durability()

        assert settings
        assert all(isinstance(value, str) for pair in settings.items() for value in pair)


async def _all_are_due(store: Store, ids: Sequence[TaskId]) -> bool:
    """A task enqueued now and stamped by the store's clock is later than all their times."""
    (probe,) = await enqueued(store, a_task(queue="probe"))
    found = await store.get([*ids, probe])
    now = found[probe].enqueued_at
    return all(due_at < now for id in ids if (due_at := found[id].due_at))
