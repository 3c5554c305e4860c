"""The intake: what becomes of each trigger, decided without a store."""

from __future__ import annotations

from random import Random

from holdfast.dispatch.backlog import Merge
from holdfast.dispatch.intake import Intake
from holdfast.dispatch.limits import Limits
from holdfast.dispatch.size import counted
from holdfast.dispatch.table import TriggerTable
from holdfast.store import START, Column, Entry, Level, Loaded, Mark, Position, Tail
from holdfast.task import TaskId, Trigger, lane_of


def a_trigger(id: int, *, version: int = 1, partition: int = 0, arrived: int = 0) -> Trigger:
    return Trigger(TaskId(id), version, "q", partition, "mail", 5, arrived=arrived or id)


def an_intake(*, size_max: int = 100, window: int = 10, handled: bool = True) -> Intake:
    limits = Limits(look_ahead=size_max, window=window, reload_at=window // 2)
    table = TriggerTable(size_max=size_max, rng=Random(0))
    intake = Intake("q", table, limits, handles=lambda kind: handled)
    intake.take(Loaded(0, START, {}, {}, []), epoch=1)
    return intake


def taken(intake: Intake) -> list[int]:
    found = []
    while item := intake.table.take(lambda trigger: None):
        found.append(item.trigger.id)
    return found


def test_the_early_cursor_never_passes_a_trigger_that_found_no_room():
    intake = an_intake(size_max=2, window=2)

    has_room = intake.read_early([a_trigger(1), a_trigger(2), a_trigger(3), a_trigger(4)])

    assert not has_room
    assert intake.partitions[0].early == Position(2, 2)


def test_a_trigger_of_an_empty_column_skips_the_backlog_and_later_ones_keep_the_order():
    intake = an_intake()
    intake.hear([a_trigger(1)])
    (partition,) = intake.partitions.values()
    parts = intake.choose([(partition, [a_trigger(2)])])[0]
    intake.hear([a_trigger(3)])  # an append is under way: no skip now

    assert [trigger.id for trigger in partition.unwritten.values()] == [3]
    intake.merge(intake.appended(partition, parts, early=True))
    assert taken(intake) == [1, 2]


def test_what_came_together_is_dispatched_together_whatever_its_partition():
    intake = an_intake(window=50)
    first = intake.partitions[0]
    second = intake.take(Loaded(1, START, {}, {}, []), epoch=1)
    lines = [
        (first, [a_trigger(1), a_trigger(4), a_trigger(5)]),
        (second, [a_trigger(2, partition=1), a_trigger(3, partition=1)]),
    ]

    chosen = intake.choose(lines)
    for (partition, _), parts in zip(lines, chosen, strict=True):
        intake.merge(intake.appended(partition, parts, early=False))

    assert taken(intake) == [1, 2, 3, 4, 5]


def test_the_exact_read_appends_what_is_known_from_memory_alone():
    intake = an_intake()
    intake.hear([a_trigger(1)])
    (partition,) = intake.partitions.values()

    assert intake.unknown_rows(partition, [a_trigger(1)]) == [a_trigger(1)]


def test_a_row_that_was_grabbed_while_it_was_being_read_is_no_news():
    intake = an_intake()
    intake.hear([a_trigger(1)])
    (partition,) = intake.partitions.values()
    assert taken(intake) == [1]

    with intake.reading():  # the read has seen the row as it was before the grab
        intake.decided(TaskId(1), 1)
        intake.finished(TaskId(1), 2)

    assert intake.unknown_rows(partition, [a_trigger(1), a_trigger(2)]) == [a_trigger(2)]
    intake.hear([a_trigger(1)])
    assert taken(intake) == []
    intake.hear([a_trigger(1, version=3)])
    assert taken(intake) == [1], "its next attempt is news"


def test_a_trigger_that_was_let_go_of_undecided_is_news_again():
    intake = an_intake()
    (partition,) = intake.partitions.values()
    intake.hear([a_trigger(1)])
    assert taken(intake) == [1]

    with intake.reading():
        intake.finished(TaskId(1), 1)  # forgotten, as when its partition went: nobody has it

    assert intake.unknown_rows(partition, [a_trigger(1)]) == [a_trigger(1)]


def test_the_exact_read_skips_what_an_early_read_has_appended():
    intake = an_intake()
    (partition,) = intake.partitions.values()
    parts = intake.choose([(partition, [a_trigger(1)])])[0]
    intake.merge(intake.appended(partition, parts, early=True))

    assert intake.unknown_rows(partition, [a_trigger(1)]) == []
    assert intake.unknown_rows(partition, [a_trigger(1, version=2)]) == [a_trigger(1, version=2)]


def test_one_decision_acks_both_places_of_a_trigger_but_not_a_newer_version():
    intake = an_intake()
    intake.hear([a_trigger(1)])
    (partition,) = intake.partitions.values()
    for version in (1, 3):
        parts = intake.choose([(partition, [a_trigger(1, version=version)])])[0]
        intake.merge(intake.appended(partition, parts, early=False))
    backlog = partition.columns[Column(5, "mail")]

    intake.decided(TaskId(1), 1)

    assert backlog.loaded == 1
    intake.decided(TaskId(1), 3)
    assert backlog.loaded == 0


def test_an_entry_dropped_from_the_window_keeps_the_other_place_of_its_task():
    intake = an_intake(window=4)
    (partition,) = intake.partitions.values()
    first = intake.choose([(partition, [a_trigger(1)])])[0]
    intake.merge(intake.appended(partition, first, early=False))
    backlog = partition.columns[Column(5, "mail")]
    second = Entry(Level(9, 99), a_trigger(1))
    ((shown, _, _),) = backlog.shown([second])
    intake._offer(backlog, second, shown)

    intake._drop(backlog, second)

    assert taken(intake) == [1]
    intake.decided(TaskId(1), 1)
    assert backlog.loaded == 0


def test_a_takeover_gives_levels_above_everything_its_predecessor_stored():
    intake = an_intake()
    marks = {Column(5, "mail"): Mark(Level(1, 40))}
    loaded = Loaded(1, START, marks, {Column(5, "mail"): Tail(Level(1, 77))}, [])
    partition = intake.take(loaded, epoch=2)

    ((part,),) = intake.choose([(partition, [a_trigger(1, partition=1)])])

    assert part.entries[0].level > Level(1, 77)


def test_a_kind_without_handler_waits_apart_and_is_forgotten_with_its_partition():
    intake = an_intake(handled=False)
    intake.hear([a_trigger(1)])

    assert list(intake.unhandled) == [1] and not taken(intake)
    intake.lose(0)
    assert not intake.unhandled and not intake.known


def test_a_long_backlog_in_many_partitions_leaves_room_for_another_kind():
    intake = an_intake(size_max=200, window=100)
    for number in range(1, 32):
        intake.take(Loaded(number, START, {}, {}, []), epoch=1)
    triggers = [a_trigger(id, partition=id % 32) for id in range(1, 1_001)]
    lines = [(p, [t for t in triggers if t.partition == n]) for n, p in intake.partitions.items()]
    for (partition, _), parts in zip(lines, intake.choose(lines), strict=True):
        intake.merge(intake.appended(partition, parts, early=True))
    newcomer = a_trigger(1_001)._replace(kind="free")

    assert intake.hear([newcomer]) == []

    assert intake.table.size_of(5, "free") == 1
    assert intake.table.size_of(5, "mail") <= 100, "half of the memory at most"


# ── how many wait ─────────────────────────────────────────────────────────────────────────────


def test_a_task_counts_once_from_its_first_hint_until_its_grab_is_decided():
    intake = an_intake()
    (partition,) = intake.partitions.values()
    assert counted(intake, booked=[]) == (0, True)

    intake.hear([a_trigger(1)])  # skips the backlog
    assert counted(intake, booked=[]) == (1, True)
    entries = intake.choose([(partition, [a_trigger(1)])])[0]  # the exact read appends it
    assert counted(intake, booked=[]) == (1, True)
    intake.merge(intake.appended(partition, entries, early=False))
    assert counted(intake, booked=[]) == (1, True)
    assert taken(intake) == [1]
    assert counted(intake, booked=[a_trigger(1)]) == (1, True), "nobody knows who wins"
    intake.decided(TaskId(1), 1)
    intake.known[TaskId(1)] = 2
    assert counted(intake, booked=[a_trigger(1)]) == (0, True)


def test_a_trigger_that_skipped_the_backlog_counts_while_it_is_being_grabbed():
    intake = an_intake()
    intake.hear([a_trigger(1)])
    assert taken(intake) == [1]

    assert counted(intake, booked=[a_trigger(1)]) == (1, True)


def test_what_waits_to_be_written_and_what_has_no_handler_counts():
    intake = an_intake()
    (partition,) = intake.partitions.values()
    intake.choose([(partition, [a_trigger(2)])])
    intake.hear([a_trigger(3)])  # an append is under way: no skip now
    assert list(partition.unwritten) == [3]

    assert counted(intake, booked=[]) == (2, True)
    unhandled = an_intake(handled=False)
    unhandled.hear([a_trigger(1)])
    assert counted(unhandled, booked=[]) == (1, True)


def test_triggers_of_partitions_that_others_own_do_not_count():
    intake = an_intake()
    intake.hear([a_trigger(1, partition=-1)])  # tried for its owner, which has no handler

    assert len(intake.table) == 1 and counted(intake, booked=[a_trigger(2, partition=7)])[0] == 0


def test_before_the_end_what_is_only_in_the_store_is_added_as_an_estimate():
    intake = an_intake(window=4)
    (partition,) = intake.partitions.values()
    lines = [(partition, [a_trigger(id) for id in range(1, 21)])]
    intake.merge(intake.appended(partition, intake.choose(lines)[0], early=True))

    assert len(intake.table) == 4 and counted(intake, booked=[]) == (20, False)


def test_what_was_taken_finds_its_way_back_into_a_full_table():
    intake = an_intake(size_max=2, window=2)
    intake.hear([a_trigger(1), a_trigger(2)])
    first = intake.table.take(lambda trigger: None)
    intake.read_early([a_trigger(3)])
    assert first is not None and not intake.table.has_room

    intake.offer_behind(first.trigger)

    assert sorted(taken(intake)) == [1, 2, 3]


def test_what_was_read_from_a_stored_lane_does_not_wait_behind_it():
    """It is the stored part itself: nothing else would ever use it up."""
    intake = an_intake()
    (partition,) = intake.partitions.values()
    trigger = a_trigger(1)._replace(ordering_key="key")
    column = Column(5, "mail", lane_of(trigger))
    intake.stored.found(partition, column, Tail(Level(1, 1), None))
    backlog = intake.stored.lane(partition, column)
    intake.table.add(trigger, Level(1, 1), column.lane)
    intake._stand(trigger.id, backlog, Entry(Level(1, 1), trigger, column.lane))
    intake.known[trigger.id] = 1
    assert taken(intake) == [1]

    intake.offer_behind(trigger)

    assert taken(intake) == [1]


def test_a_trigger_that_is_read_from_its_lane_too_stays_in_a_table_that_is_overfull():
    intake = an_intake(size_max=4)
    for id in range(1, 5):
        intake.found(a_trigger(id))
    intake.found(a_trigger(5))  # an elder that the store named comes in, however full it is
    lane = lane_of(a_trigger(5))
    column = Column(5, "mail", lane)
    backlog = intake.stored.lane(intake.partitions[0], column)
    (entry,) = backlog.place([a_trigger(5)], [(1, 1)])

    intake.merge([(backlog, Merge([Entry(entry.level, entry.trigger, lane)], []))])

    assert sorted(taken(intake)) == [1, 2, 3, 4, 5]


def test_nothing_of_a_lost_partition_is_kept_but_what_is_on_its_way():
    intake = an_intake()
    (partition,) = intake.partitions.values()
    parts = intake.choose([(partition, [a_trigger(1), a_trigger(2)])])[0]
    intake.merge(intake.appended(partition, parts, early=False))
    assert intake.table.take(lambda trigger: None).trigger.id == 1

    intake.lose(0)

    assert (intake.known, intake.places) == ({1: 1}, {})
    intake.decided(TaskId(1), 1)
    intake.finished(TaskId(1), 2)
    assert not intake.known
