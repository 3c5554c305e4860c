"""What a store promises to a partition's owner: claims, arrivals, records, levels."""

from __future__ import annotations

import pytest

from holdfast.store import (
    START,
    ZERO,
    Column,
    Counters,
    Cursor,
    Entry,
    Level,
    LevelCursor,
    Mark,
    Position,
    Record,
    Store,
    Tail,
)
from holdfast.task import Event, TaskId, Trigger
from holdfast.testing.contracts.builders import (
    NODE,
    OTHER,
    QUEUE,
    a_task,
    claimed,
    enqueued,
    eventually,
    grabbed,
    settle,
    trigger_of,
    waiting_triggers,
)

EMAIL = Column(5, "email")


def an_entry(pass_: int, seq: int, column: Column = EMAIL, **facts: object) -> Entry:
    id = TaskId(1000 + seq)
    trigger = Trigger(id, 1, QUEUE, 0, column.kind, column.priority)
    return Entry(Level(pass_, seq), trigger._replace(**facts))  # type: ignore[arg-type]


async def record(store: Store, epoch: int, *entries: Entry, partition: int = 0) -> bool:
    """Whether the record was taken."""
    one = Record(partition=partition, epoch=epoch, entries=entries)
    return await store.record(QUEUE, [one]) == set()


async def read(store: Store, above: Level = ZERO, limit: int = 100) -> list[Level]:
    (entries,) = await store.levels(QUEUE, [LevelCursor(0, EMAIL, above, limit)])
    return [entry.level for entry in entries]


class ArrivalsContract:
    async def test_arrivals_come_in_order_and_page_by_page(self, store: Store) -> None:
        ids = await enqueued(store, *(a_task() for _ in range(7)))
        ids += await enqueued(store, *(a_task() for _ in range(4)))

        position, seen = START, []
        while page := await _page(store, position, limit=3):
            assert len(page) <= 3
            seen += page
            position = Position(page[-1].arrived, page[-1].id)

        assert [trigger.id for trigger in seen] == ids
        assert seen == sorted(seen, key=lambda trigger: (trigger.arrived, trigger.id))

    async def test_an_arrival_carries_all_facts_but_the_payload(self, store: Store) -> None:
        (id,) = await enqueued(
            store,
            a_task(partition=2, priority=1, fairness_key="t", weight=2.5, ordering_key="order"),
        )

        trigger = await trigger_of(store, id)

        facts = trigger._replace(arrived=0)
        assert facts == Trigger(id, 1, QUEUE, 2, "email", 1, "t", 2.5, "order", None, 0)
        assert trigger.arrived > 0

    async def test_each_partition_and_queue_has_arrivals_of_its_own(self, store: Store) -> None:
        first, second, _, fourth = await enqueued(
            store, a_task(partition=1), a_task(partition=4), a_task(queue="else"), a_task()
        )

        cursors = [Cursor(4, START), Cursor(1, START)]
        found = await store.arrivals(QUEUE, cursors, limit=10, exact=False)

        assert {(one.partition, one.id) for one in found.triggers} == {(1, first), (4, second)}
        assert {one.id for one in await waiting_triggers(store)} == {first, second, fourth}

    async def test_the_limit_counts_for_each_partition(self, store: Store) -> None:
        await enqueued(store, *(a_task(partition=number % 2) for number in range(10)))

        cursors = [Cursor(0, START), Cursor(1, START)]
        found = await store.arrivals(QUEUE, cursors, limit=3, exact=False)

        assert [one.partition for one in found.triggers].count(0) == 3
        assert [one.partition for one in found.triggers].count(1) == 3

    async def test_only_submitted_tasks_arrive(self, store: Store) -> None:
        tasks = await grabbed(store, a_task(), a_task(), a_task())
        await settle(store, tasks[0], Event.SUCCEEDED)
        await settle(store, tasks[1], Event.PARKED)
        await enqueued(store, a_task(delay_s=3600))

        assert await waiting_triggers(store) == []

    async def test_an_exact_read_is_complete_below_its_horizon(self, store: Store) -> None:
        ids = await enqueued(store, a_task(), a_task())

        async def both() -> int:
            found = await store.arrivals(QUEUE, [Cursor(0, START)], limit=10, exact=True)
            assert all(one.arrived < found.horizon for one in found.triggers)
            return found.horizon if [one.id for one in found.triggers] == ids else 0

        horizon = await eventually(both)
        await enqueued(store, a_task())
        assert (await waiting_triggers(store))[-1].arrived >= horizon

    async def test_a_position_at_the_horizon_skips_nothing_that_comes_later(
        self, store: Store
    ) -> None:
        await enqueued(store, a_task())
        found = await store.arrivals(QUEUE, [], limit=10, exact=True)

        (late,) = await enqueued(store, a_task())

        page = await _page(store, Position(found.horizon, 0), limit=10)
        assert late in [one.id for one in page]


class RecordContract:
    @pytest.mark.req("FAIR-2")
    async def test_levels_are_read_by_pass_first_and_seq_second(self, store: Store) -> None:
        epochs = await claimed(store)
        levels = [Level(1, 9), Level(2, 3), Level(2, 10), Level(10, 1), Level(10, 2)]

        assert await record(store, epochs[0], *(an_entry(*level) for level in levels))

        assert await read(store) == levels
        assert await read(store, Level(2, 3), limit=2) == [Level(2, 10), Level(10, 1)]

    @pytest.mark.req("FAIR-3")
    async def test_entries_written_out_of_order_are_read_in_order(self, store: Store) -> None:
        epochs = await claimed(store)

        await record(store, epochs[0], an_entry(7, 1), an_entry(3, 2))
        await record(store, epochs[0], an_entry(5, 4), an_entry(3, 1))

        assert await read(store) == [Level(3, 1), Level(3, 2), Level(5, 4), Level(7, 1)]

    async def test_an_entry_comes_back_as_it_was_written(self, store: Store) -> None:
        epochs = await claimed(store)
        (id,) = await enqueued(
            store, a_task(fairness_key="t", weight=2.5, ordering_key="o", priority=2)
        )
        entry = Entry(Level(4, 1), await trigger_of(store, id))

        await record(store, epochs[0], entry)

        cursor = LevelCursor(0, Column(2, "email"), ZERO, 10)
        assert await store.levels(QUEUE, [cursor]) == [[entry]]

    async def test_columns_and_partitions_do_not_meet(self, store: Store) -> None:
        epochs = await claimed(store)
        places = [(0, EMAIL), (0, Column(5, "sms")), (0, Column(4, "email")), (1, EMAIL)]
        for seq, (partition, column) in enumerate(places, 1):
            await record(store, epochs[partition], an_entry(1, seq, column), partition=partition)

        cursors = [LevelCursor(partition, column, ZERO, 10) for partition, column in places]
        found = await store.levels(QUEUE, cursors)

        assert [[entry.level.seq for entry in line] for line in found] == [[1], [2], [3], [4]]

    async def test_lanes_of_a_column_do_not_meet(self, store: Store) -> None:
        epochs = await claimed(store)
        lanes = ["", "facme", "fbolt"]
        entries = [an_entry(1, 1)._replace(lane=lane) for lane in lanes]
        await record(store, epochs[0], *entries)
        columns = [EMAIL._replace(lane=lane) for lane in lanes]

        trims = {columns[1]: (ZERO, Level(1, 1))}
        await store.record(QUEUE, [Record(partition=0, epoch=epochs[0], trims=trims)])

        cursors = [LevelCursor(0, column, ZERO, 10) for column in columns]
        assert await store.levels(QUEUE, cursors) == [[entries[0]], [], [entries[2]]]

    async def test_levels_are_counted_above_each_cursor_and_up_to_its_limit(
        self, store: Store
    ) -> None:
        epochs = await claimed(store)
        await record(store, epochs[0], *(an_entry(pass_, pass_) for pass_ in range(1, 8)))
        await record(store, epochs[0], an_entry(1, 1)._replace(lane="facme"))
        above = [(ZERO, 10), (Level(3, 3), 10), (Level(3, 2), 3), (Level(7, 7), 10)]

        cursors = [LevelCursor(0, EMAIL, level, limit) for level, limit in above]
        cursors += [LevelCursor(0, EMAIL._replace(lane="facme"), ZERO, 10)]
        cursors += [LevelCursor(1, EMAIL, ZERO, 10)]

        assert await store.count_levels(QUEUE, cursors) == [7, 4, 3, 0, 1, 0]

    async def test_a_record_may_be_repeated(self, store: Store) -> None:
        epochs = await claimed(store)

        assert await record(store, epochs[0], an_entry(1, 1), an_entry(1, 2))
        assert await record(store, epochs[0], an_entry(1, 1), an_entry(1, 2))

        assert await read(store) == [Level(1, 1), Level(1, 2)]

    @pytest.mark.req("FAIR-26")
    async def test_a_trim_deletes_up_to_the_ack_level_and_nothing_above(self, store: Store) -> None:
        epochs = await claimed(store)
        await record(store, epochs[0], *(an_entry(n // 3, n) for n in range(1, 10)))
        ack_level = Level(1, 5)

        for low in (ZERO, ack_level):
            trims = {EMAIL: (low, ack_level)}
            marks = {EMAIL: Mark(ack_level, 1)}
            one = Record(partition=0, epoch=epochs[0], marks=marks, trims=trims)
            assert await store.record(QUEUE, [one]) == set()

        assert await read(store) == [Level(2, 6), Level(2, 7), Level(2, 8), Level(3, 9)]

    @pytest.mark.req("FAIR-32")
    async def test_a_write_by_an_old_owner_is_refused_as_a_whole(self, store: Store) -> None:
        old = await claimed(store)
        await _hand_over(store, old)
        stale = Record(
            partition=0,
            epoch=old[0],
            entries=[an_entry(1, 1)],
            position=Position(9, 9),
            marks={EMAIL: Mark(Level(9, 9), 9)},
        )

        assert await store.record(QUEUE, [stale]) == {0}

        (loaded,) = await store.load(QUEUE, [0])
        assert (loaded.position, loaded.marks, loaded.columns) == (START, {}, {})

    async def test_a_refused_record_does_not_touch_the_others(self, store: Store) -> None:
        epochs = await claimed(store)
        records = [
            Record(partition=1, epoch=epochs[1] - 1, entries=[an_entry(1, 1)]),
            Record(partition=0, epoch=epochs[0], entries=[an_entry(1, 2)]),
        ]

        assert await store.record(QUEUE, records) == {1}

        assert await read(store) == [Level(1, 2)]

    @pytest.mark.req("FAIR-33")
    async def test_what_was_written_before_the_takeover_is_in_its_first_read(
        self, store: Store
    ) -> None:
        old = await claimed(store)
        await record(store, old[0], an_entry(1, 1), an_entry(2, 2))

        await _hand_over(store, old)

        (loaded,) = await store.load(QUEUE, [0])
        assert loaded.columns == {EMAIL: Tail(Level(2, 2))}
        assert await read(store) == [Level(1, 1), Level(2, 2)]

    @pytest.mark.req("FAIR-34")
    async def test_a_write_that_lands_after_the_new_owner_read_past_it_is_refused(
        self, store: Store
    ) -> None:
        old = await claimed(store)
        await record(store, old[0], an_entry(5, 1))
        new = await _hand_over(store, old)
        assert await read(store) == [Level(5, 1)]

        assert not await record(store, old[0], an_entry(3, 2))

        assert await record(store, new[0], an_entry(5, 2))  # the sender tries again, at the owner
        assert await read(store) == [Level(5, 1), Level(5, 2)]

    @pytest.mark.req("FAIR-37")
    async def test_of_two_active_owners_the_losers_ack_level_never_overwrites(
        self, store: Store
    ) -> None:
        old = await claimed(store)
        new = await _hand_over(store, old)
        winner, loser = Mark(Level(3, 3), 4), Mark(Level(9, 9), 9)

        won = Record(partition=0, epoch=new[0], marks={EMAIL: winner})
        lost = Record(partition=0, epoch=old[0], marks={EMAIL: loser})

        assert await store.record(QUEUE, [won]) == set()
        assert await store.record(QUEUE, [lost]) == {0}
        (loaded,) = await store.load(QUEUE, [0])
        assert loaded.marks == {EMAIL: winner}


class LoadContract:
    async def test_a_new_partition_starts_from_nothing(self, store: Store) -> None:
        await store.holdings(QUEUE)

        (loaded,) = await store.load(QUEUE, [3])

        assert (loaded.partition, loaded.position) == (3, START)
        assert (loaded.marks, loaded.columns, loaded.running) == ({}, {}, [])

    async def test_a_takeover_finds_position_marks_and_ends_of_backlogs(self, store: Store) -> None:
        epochs = await claimed(store)
        sms = Column(1, "sms")
        entries = [an_entry(1, 1), an_entry(2, 2), an_entry(1, 3, sms)]
        marks = {EMAIL: Mark(Level(1, 1), 2), sms: Mark(Level(1, 3), 1)}
        for position in (Position(5, 6), Position(8, 0)):
            one = Record(
                partition=0, epoch=epochs[0], entries=entries, position=position, marks=marks
            )
            await store.record(QUEUE, [one])

        (loaded,) = await store.load(QUEUE, [0])

        assert (loaded.position, loaded.marks) == (Position(8, 0), marks)
        assert loaded.columns == {EMAIL: Tail(Level(2, 2))}

    async def test_a_takeover_finds_every_lane_and_whose_the_last_entry_is(
        self, store: Store
    ) -> None:
        epochs = await claimed(store)
        trigger = an_entry(1, 1).trigger._replace(fairness_key="acme")
        lanes = ["", "facme", "fbolt"]
        entries = [Entry(Level(1, 7 + n), trigger, lane) for n, lane in enumerate(lanes)]
        await record(store, epochs[0], *entries)

        (loaded,) = await store.load(QUEUE, [0])

        assert loaded.columns == {
            Column(5, "email", lane): Tail(Level(1, 7 + n), "acme") for n, lane in enumerate(lanes)
        }

    async def test_counters_replace_the_older_ones_of_their_column_under_the_epoch(
        self, store: Store
    ) -> None:
        old = await claimed(store)
        older: dict[Column, Counters] = {EMAIL: {"older": 1}}
        counted: dict[Column, Counters] = {EMAIL: {None: 9, "acme": 2**40}}
        for counters in (older, counted):
            await store.record(QUEUE, [Record(partition=0, epoch=old[0], counters=counters)])
        await _hand_over(store, old)
        late = Record(partition=0, epoch=old[0], counters={EMAIL: {"late": 1}})

        assert await store.record(QUEUE, [late]) == {0}

        (loaded,) = await store.load(QUEUE, [0])
        assert loaded.counters == counted

    async def test_a_takeover_finds_the_running_tasks_of_its_partition(self, store: Store) -> None:
        task, _ = await grabbed(
            store, a_task(partition=2, fairness_key="t"), a_task(partition=3), node=OTHER
        )

        (loaded,) = await store.load(QUEUE, [2])

        assert [tuple(row) for row in loaded.running] == [
            (task.id, task.version, "email", OTHER, 2, None, "t")
        ]


class ClaimContract:
    async def test_a_new_queue_has_all_its_partitions_without_an_owner(self, store: Store) -> None:
        found = await store.holdings(QUEUE)

        assert [holding.partition for holding in found] == list(range(store.partitions))
        assert {(holding.owner, holding.wish) for holding in found} == {(None, None)}
        assert await store.holdings(QUEUE) == found

    async def test_a_claim_raises_the_epoch_by_one(self, store: Store) -> None:
        seen = {holding.partition: holding.epoch for holding in await store.holdings(QUEUE)}

        taken = await store.claim(QUEUE, seen, node=NODE)

        assert taken == {partition: epoch + 1 for partition, epoch in seen.items()}
        found = {one.partition: (one.owner, one.epoch) for one in await store.holdings(QUEUE)}
        assert found == {partition: (NODE, epoch) for partition, epoch in taken.items()}

    async def test_a_claim_at_another_epoch_takes_nothing(self, store: Store) -> None:
        epochs = await claimed(store)
        await store.let_go(QUEUE, [0, 1], node=NODE)

        taken = await store.claim(QUEUE, {0: epochs[0], 1: epochs[1] - 1}, node=OTHER)

        assert taken == {0: epochs[0] + 1}

    async def test_a_partition_of_a_live_owner_is_left_out(self, store: Store) -> None:
        await store.renew(NODE, lease_s=60, queues=[QUEUE], kinds=[])
        epochs = await claimed(store)

        assert await claimed(store, OTHER) == {}

        await store.let_go(QUEUE, [2], node=NODE)
        assert await claimed(store, OTHER) == {2: epochs[2] + 1}

    async def test_the_partitions_of_an_ended_lease_can_be_taken(self, store: Store) -> None:
        await store.renew(NODE, lease_s=0.2, queues=[QUEUE], kinds=[])
        epochs = await claimed(store)

        taken = await eventually(lambda: claimed(store, OTHER))

        assert taken == {partition: epoch + 1 for partition, epoch in epochs.items()}

    async def test_only_the_owner_can_let_go(self, store: Store) -> None:
        await claimed(store)

        await store.let_go(QUEUE, [0], node=OTHER)

        assert (await store.holdings(QUEUE))[0].owner == NODE

    async def test_a_wish_is_seen_until_the_partition_is_taken(self, store: Store) -> None:
        epochs = await claimed(store)

        await store.wish(QUEUE, [1], node=OTHER)

        found = await store.holdings(QUEUE)
        assert [(one.owner, one.wish) for one in found[:2]] == [(NODE, None), (NODE, OTHER)]
        await store.let_go(QUEUE, [1], node=NODE)
        await store.claim(QUEUE, {1: epochs[1]}, node=OTHER)
        taken = (await store.holdings(QUEUE))[1]
        assert (taken.owner, taken.wish) == (OTHER, None)


async def _page(store: Store, position: Position, *, limit: int) -> list[Trigger]:
    found = await store.arrivals(QUEUE, [Cursor(0, position)], limit=limit, exact=False)
    return found.triggers


async def _hand_over(store: Store, old: dict[int, int]) -> dict[int, int]:
    """Another node takes all partitions; the old owner does not know yet."""
    await store.let_go(QUEUE, list(old), node=NODE)
    return await claimed(store, OTHER)
