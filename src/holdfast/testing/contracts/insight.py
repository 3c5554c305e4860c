"""What people are told about tasks that do not run."""

from __future__ import annotations

from holdfast.insight import Elder, Line, Standing
from holdfast.limit import Limit, Want
from holdfast.store import Change, Column, Entry, Level, Mark, Position, Record, Store
from holdfast.task import Event, State, TaskId
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
    settle,
    trigger_of,
    waiting_triggers,
)


async def known(store: Store, id: TaskId) -> Standing:
    standing = await store.standing(id)
    assert standing is not None
    return standing


async def appended(
    store: Store, ids: list[TaskId], epochs: dict[int, int], *, lane: str = ""
) -> None:
    """The tasks in the backlogs of their partitions, in this order."""
    entries: dict[int, list[Entry]] = {}
    for number, id in enumerate(ids, 1):
        trigger = await trigger_of(store, id)
        entries.setdefault(trigger.partition, []).append(
            Entry(Level(number, number), trigger, lane)
        )
    records = [
        Record(partition=partition, epoch=epochs[partition], entries=line)
        for partition, line in entries.items()
    ]
    assert not await store.record(QUEUE, records)


class InsightContract:
    async def test_a_task_that_nobody_knows_has_no_standing(self, store: Store) -> None:
        assert await store.standing(TaskId(4711)) is None

    async def test_to_ask_makes_no_queue_known(self, store: Store) -> None:
        (id,) = await enqueued(store)

        standing = await known(store, id)

        assert (standing.is_known, standing.owner, standing.is_read) == (False, None, False)
        assert standing.line == Line()
        assert await store.unknown_queues() == [QUEUE]
        assert abs((standing.now - standing.task.enqueued_at).total_seconds()) < 10

    async def test_a_finished_task_is_known_from_the_archive(self, store: Store) -> None:
        (task,) = await grabbed(store)
        await settle(store, task, Event.SUCCEEDED)

        assert (await known(store, task.id)).task.state is State.DONE

    async def test_those_before_it_are_counted_over_the_partitions_of_its_owner(
        self, store: Store
    ) -> None:
        epochs = await claimed(store)
        ids = await enqueued(
            store,
            a_task(fairness_key="acme"),
            a_task(fairness_key="bolt", partition=1),
            a_task(fairness_key="acme", partition=1),
            a_task(fairness_key="acme"),
            a_task(fairness_key="acme", partition=2),
        )
        urgent = await enqueued(store, a_task(priority=1), a_task(priority=1, partition=1))
        await appended(store, ids, epochs)
        await appended(store, urgent, epochs)

        line = (await known(store, ids[3])).line
        assert line == Line(lane="", before=3, before_of_key=2, sooner=2)
        await store.change([Change(ids[2], Event.CANCELLED), Change(urgent[0], Event.CANCELLED)])

        line = (await known(store, ids[3])).line
        assert line == Line(lane="", before=2, before_of_key=1, sooner=1)
        assert (await known(store, ids[3])).owner == NODE

    async def test_what_another_node_owns_is_another_line(self, store: Store) -> None:
        seen = {holding.partition: holding.epoch for holding in await store.holdings(QUEUE)}
        epochs = await store.claim(QUEUE, {0: seen[0]}, node=NODE)
        epochs |= await store.claim(QUEUE, {1: seen[1]}, node=OTHER)
        ids = await enqueued(store, a_task(partition=1), a_task(), a_task())
        await appended(store, ids, epochs)

        assert (await known(store, ids[2])).line.before == 1

    async def test_what_is_acked_stands_before_nobody(self, store: Store) -> None:
        epochs = await claimed(store)
        ids = await enqueued(store, a_task(), a_task(), a_task())
        await appended(store, ids, epochs)
        marks = {Column(5, "email"): Mark(Level(2, 2), 2)}

        await store.record(QUEUE, [Record(partition=0, epoch=epochs[0], marks=marks)])

        assert (await known(store, ids[2])).line.before == 0
        assert (await known(store, ids[0])).line.lane is None

    async def test_a_key_that_had_to_wait_stands_in_its_lane(self, store: Store) -> None:
        epochs = await claimed(store)
        ids = await enqueued(store, *(a_task(fairness_key="acme") for _ in range(3)))
        await appended(store, ids, epochs, lane="facme")

        assert (await known(store, ids[2])).line == Line(lane="facme", before=2, before_of_key=2)

    async def test_the_exact_read_has_passed_what_is_not_above_the_position(
        self, store: Store
    ) -> None:
        epochs = await claimed(store)
        ids = await enqueued(store, a_task())
        later = await enqueued(store, a_task())
        trigger = await trigger_of(store, ids[0])
        position = Position(trigger.arrived, trigger.id)

        await store.record(QUEUE, [Record(partition=0, epoch=epochs[0], position=position)])

        assert (await known(store, ids[0])).is_read
        assert not (await known(store, later[0])).is_read

    async def test_the_elder_of_an_ordering_key_is_named(self, store: Store) -> None:
        epochs = await claimed(store)
        ids = await enqueued(store, *(a_task(ordering_key="k") for _ in range(3)))
        (other,) = await enqueued(store, a_task(ordering_key="another"))

        assert (await known(store, ids[2])).elder == Elder(ids[0], State.SUBMITTED)
        assert (await known(store, other)).elder is None
        (first,) = await grab(store, [await trigger_of(store, ids[0])], epochs=epochs)
        assert (await known(store, ids[1])).elder == Elder(ids[0], State.PROCESSING)
        await settle(store, first, Event.PARKED, error="broken")
        assert (await known(store, ids[2])).elder == Elder(ids[0], State.ERROR)

    async def test_what_runs_in_the_queue_and_what_is_left_of_a_rate_is_told(
        self, store: Store
    ) -> None:
        rate = Limit(name="slowly", queue=QUEUE, rate=2.0, burst=1.0)
        await store.change_rules(QUEUE, limits=[rate])
        running = await grabbed(store, a_task(fairness_key="acme"), a_task(kind="sms"))
        await enqueued(store, a_task(queue="else"))
        await grab(store, await waiting_triggers(store, "else"))
        (id,) = await enqueued(store)
        await store.allot(QUEUE, [Want("slowly", "", 0, 2)], node=NODE)

        standing = await known(store, id)

        assert [tuple(one) for one in standing.running] == [
            (running[0].id, "email", "acme", NODE),
            (running[1].id, "sms", None, NODE),
        ]
        tokens = standing.tokens["slowly", ""]
        assert tokens.tokens == 0.0
        assert 0 <= tokens.since_s < 10

    async def test_the_kinds_that_wait_are_listed_by_queue(self, store: Store) -> None:
        await enqueued(
            store, a_task(), a_task(kind="sms", partition=3), a_task(), a_task(queue="b")
        )
        await enqueued(store, a_task(queue="c", delay_s=60))

        assert await store.waiting_kinds() == [("b", "email"), (QUEUE, "email"), (QUEUE, "sms")]

    async def test_errors_and_stuck_tasks_are_counted(self, store: Store) -> None:
        (parked,) = await grabbed(store)
        await settle(store, parked, Event.PARKED, error="broken")
        ids = await enqueued(store, a_task(), a_task())
        await grab(store, [await trigger_of(store, ids[0])])
        late = await trigger_of(store, ids[1])
        await grab(store, [late], deadlines_s={late.kind: 0.01})

        async def is_stuck() -> bool:
            return (await store.troubles()).stuck == 1

        assert await eventually(is_stuck)
        assert (await store.troubles()).errors == 1
