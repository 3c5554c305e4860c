"""The intake: which hints are news, where they go, and what fits into memory."""

from __future__ import annotations

from random import Random
from typing import Any

from holdfast.dispatch.backlog import Merge
from holdfast.dispatch.intake import ANYONE, Intake, Part, Partition
from holdfast.dispatch.limits import Limits
from holdfast.dispatch.table import TriggerTable
from holdfast.store import START, Column, Entry, Level, Loaded, Mark, Position, Tail
from holdfast.task import TaskId, Trigger
from holdfast.testing.build import a_trigger as built

MAIL = Column(5, "mail")


def a_trigger(id: int, kind: str = "mail", **fields: Any) -> Trigger:
    return built(id, kind, **({"queue": "q", "arrived": id} | fields))


def an_intake(handled: str = "mail print", *, size_max: int | None = None, **limits: Any) -> Intake:
    bounds = Limits(**({"look_ahead": 400, "window": 10, "reload_at": 5} | limits))
    size_max = bounds.look_ahead if size_max is None else size_max
    table = TriggerTable(size_max=size_max, rng=Random(0))
    intake = Intake("q", table, bounds, handles=handled.split().__contains__)
    intake.take(Loaded(0, START, {}, {}, []), epoch=1)
    return intake


def only(intake: Intake) -> Partition:
    (partition,) = intake.partitions.values()
    return partition


def append(intake: Intake, *triggers: Trigger, early: bool = False) -> list[Part]:
    partition = intake.partitions[triggers[0].partition]
    parts = intake.choose([(partition, triggers)])[0]
    intake.merge(intake.appended(partition, parts, early=early))
    return parts


def taken(intake: Intake) -> list[tuple[int, int]]:
    """Id and version of what the table gives out."""
    found = []
    while item := intake.table.take(lambda trigger: None):
        found.append((item.trigger.id, item.trigger.version))
    return found


def decide(intake: Intake, id: int, version: int = 1) -> None:
    intake.decided(TaskId(id), version)
    intake.finished(TaskId(id), version)


# ── which hints are news ──────────────────────────────────────────────────────────────────────


def test_a_hint_is_taken_in_once_and_a_newer_version_replaces_it():
    intake = an_intake()

    for version in (2, 2, 1, 3, 3):
        assert intake.hear([a_trigger(1, version=version)]) == []

    assert taken(intake) == [(1, 3)]
    assert intake.hear([a_trigger(1, version=3)]) == [] and taken(intake) == []


def test_hints_of_partitions_that_others_own_are_let_go_of():
    intake = an_intake()

    assert intake.hear([a_trigger(1, partition=7), a_trigger(2)]) == []

    assert taken(intake) == [(2, 1)] and TaskId(1) not in intake.known


def test_a_hint_for_anyone_is_tried_if_there_is_a_handler_and_no_order_to_keep():
    intake = an_intake()

    intake.hear(
        [
            a_trigger(1, partition=ANYONE),
            a_trigger(2, "fax", partition=ANYONE),
            a_trigger(3, partition=ANYONE, ordering_key="k"),
        ]
    )

    assert taken(intake) == [(1, 1)] and set(intake.known) == {1}


def test_a_hint_makes_its_partition_worth_an_exact_read():
    intake = an_intake()
    partition = only(intake)
    partition.is_dirty = False

    intake.hear([a_trigger(1, partition=7)])
    assert not partition.is_dirty
    intake.hear([a_trigger(1)])
    assert partition.is_dirty


def test_what_an_early_read_has_appended_is_no_news_but_its_next_version_is():
    intake = an_intake()
    append(intake, a_trigger(1), early=True)
    assert taken(intake) == [(1, 1)]
    intake.known.clear()

    intake.hear([a_trigger(1)])
    assert not only(intake).unwritten and taken(intake) == []
    intake.hear([a_trigger(1, version=2)])
    assert [t.version for t in only(intake).unwritten.values()] == [2]


def test_what_waits_to_be_written_keeps_its_turn_until_a_newer_version_comes():
    intake = an_intake()
    partition = only(intake)
    intake.choose([(partition, [a_trigger(1)])])  # under way: nobody may skip
    intake.hear([a_trigger(2), a_trigger(3)])

    intake.hear([a_trigger(2)])
    assert list(partition.unwritten) == [2, 3]
    intake.hear([a_trigger(2, version=2)])
    assert [(t.id, t.version) for t in partition.unwritten.values()] == [(2, 2), (3, 1)]


def test_kinds_without_a_handler_wait_apart_up_to_a_bound():
    intake = an_intake(unhandled_max=2)

    intake.hear([a_trigger(id, "fax") for id in (1, 2, 3)])

    assert list(intake.unhandled) == [1, 2] and set(intake.known) == {1, 2}
    assert not only(intake).unwritten


# ── what fits into memory ─────────────────────────────────────────────────────────────────────


def test_of_a_column_a_share_of_memory_may_skip_the_backlog_and_the_rest_is_written():
    intake = an_intake(look_ahead=400)

    intake.hear([a_trigger(id) for id in range(1, 201)])

    assert intake.table.size_of(5, "mail") == 400 // (4 * 1)
    assert list(only(intake).unwritten) == list(range(101, 201))
    assert intake.room == 400 - 200


def test_with_more_columns_each_may_skip_less_but_sixteen_at_least():
    intake = an_intake(" ".join(f"kind{n}" for n in range(50)), look_ahead=400)
    for number in range(50):
        intake.hear([a_trigger(1_000 + number, f"kind{number}")])
    intake.fit()

    intake.hear([a_trigger(id, "kind0") for id in range(1, 100)])

    assert intake.table.size_of(5, "kind0") == 16


def test_what_waits_to_be_written_has_a_bound_and_the_rest_is_left():
    intake = an_intake(append_max=3)
    intake.choose([(only(intake), [a_trigger(1)])])

    left = intake.hear([a_trigger(id) for id in range(2, 8)])

    assert list(only(intake).unwritten) == [2, 3, 4]
    assert [trigger.id for trigger in left] == [5, 6, 7]


def test_what_the_exact_read_has_to_skip_has_a_bound_too():
    intake = an_intake(remembered_max=4)
    append(intake, a_trigger(1), a_trigger(2), early=True)

    left = intake.hear([a_trigger(id) for id in range(3, 8)])

    assert list(only(intake).unwritten) == [3, 4]
    assert [trigger.id for trigger in left] == [5, 6, 7]


def test_a_table_that_is_full_turns_hints_away():
    intake = an_intake(look_ahead=20, window=4)

    left = intake.hear([a_trigger(id) for id in range(1, 31)])

    assert len(intake.table) + len(only(intake).unwritten) + len(left) == 30
    assert len(intake.table) == 16


def test_what_finds_the_table_full_is_offered_again_when_there_is_room():
    intake = an_intake(look_ahead=40, size_max=2)
    append(intake, a_trigger(1), a_trigger(2))
    append(intake, a_trigger(3, "print"))
    assert intake.room == 40 - 2 - 1
    intake.offer_again()
    assert intake.room == 40 - 2 - 1, "there is still no room"

    assert taken(intake) == [(1, 1), (2, 1)]
    intake.offer_again()

    assert taken(intake) == [(3, 1)]
    intake.offer_again()
    assert taken(intake) == []


def test_what_leaves_its_window_or_its_partition_is_not_offered_again():
    intake = an_intake(size_max=1)
    intake.take(Loaded(1, START, {}, {}, []), epoch=1)
    append(intake, a_trigger(9, partition=1))
    append(intake, a_trigger(1))
    (part,) = append(intake, a_trigger(2, partition=1))
    append(intake, a_trigger(3, "print", partition=1))
    intake.lose(0)
    intake.merge([(part.backlog, Merge([], part.entries))])
    assert taken(intake) == [(9, 1)]

    intake.offer_again()

    assert taken(intake) == [(3, 1)]


def test_memory_is_shared_among_the_columns_in_use_and_their_partitions():
    intake = an_intake(look_ahead=400, window=90, reload_at=30)
    mail = intake.backlog(only(intake), MAIL)
    assert mail.batch_max == 90, "alone, a column has its whole window"

    append(intake, a_trigger(1))
    append(intake, a_trigger(2, "print"))
    intake.fit()
    assert mail.batch_max == 400 // (2 * 3), "mail, print, and one for the next newcomer"

    intake.take(Loaded(1, START, {}, {}, []), epoch=1)
    assert mail.batch_max == 400 // (2 * 3 * 2)


def test_a_takeover_starts_with_what_its_last_owner_left():
    intake = an_intake()
    mark = Mark(Level(4_000, 7), 4_000)
    loaded = Loaded(1, Position(9, 9), {MAIL: mark}, {MAIL: Tail(Level(6_000, 11), "busy")}, [])
    partition = intake.take(loaded, epoch=3)
    backlog = partition.columns[MAIL]

    assert (partition.position, partition.early) == (Position(9, 9), Position(9, 9))
    assert backlog.ack_level == Level(4_000, 7) and backlog.wants_read
    entry = append(intake, a_trigger(1, partition=1, fairness_key="busy"))[0].entries[0]
    assert entry.level.pass_ == 7_000, "one step behind the last of its key"
    other = append(intake, a_trigger(2, partition=1, fairness_key="new"))[0].entries[0]
    assert other.level.pass_ == 4_000
    assert entry.level.seq > 3 << 40, "above every number of the owners before"


# ── cursors ───────────────────────────────────────────────────────────────────────────────────


def test_the_early_cursor_never_stands_behind_the_exact_one():
    partition = Partition(0, 1, Position(5, 5))
    partition.early = Position(8, 8)

    partition.moved_to(Position(7, 7))
    assert (partition.position, partition.early) == (Position(7, 7), Position(8, 8))
    partition.moved_to(Position(9, 9))
    assert (partition.position, partition.early) == (Position(9, 9), Position(9, 9))


def test_an_early_page_moves_the_cursors_of_its_own_partitions_and_never_back():
    intake = an_intake()
    intake.take(Loaded(1, START, {}, {}, []), epoch=1)
    page = [a_trigger(5), a_trigger(3), a_trigger(8, partition=1), a_trigger(9, partition=7)]

    assert intake.read_early(page)

    early = {number: partition.early for number, partition in intake.partitions.items()}
    assert early == {0: Position(5, 5), 1: Position(8, 8)}


def test_a_full_partition_does_not_stop_the_cursor_of_another():
    intake = an_intake(append_max=1)
    second = intake.take(Loaded(1, START, {}, {}, []), epoch=1)
    for partition in intake.partitions.values():
        intake.choose([(partition, [a_trigger(90 + partition.number)])])

    page = [a_trigger(id, partition=0) for id in (1, 2, 3)] + [a_trigger(4, partition=1)]
    assert not intake.read_early(page)

    assert intake.partitions[0].early == Position(1, 1)
    assert second.early == Position(4, 4)


# ── appends ───────────────────────────────────────────────────────────────────────────────────


def test_after_a_failed_append_everything_above_the_position_is_read_again():
    intake = an_intake()
    partition = only(intake)
    partition.moved_to(Position(3, 3))
    partition.early, partition.is_dirty = Position(9, 9), False
    parts = intake.choose([(partition, [a_trigger(4)])])[0]

    intake.append_failed(partition, parts)

    assert partition.early == Position(3, 3) and partition.is_dirty
    assert partition.columns[MAIL].wants_read


def test_what_skipped_the_backlog_keeps_its_turn_when_it_is_appended():
    intake = an_intake()
    intake.hear([a_trigger(id, fairness_key="a") for id in (1, 2, 3)])
    level = intake.table.level_of(a_trigger(3, fairness_key="a"))
    assert level is not None and level.pass_ == 2_001

    (part,) = append(intake, a_trigger(3, fairness_key="a"))

    assert part.entries[0].level.pass_ == 2_001
    (part,) = append(intake, a_trigger(4, fairness_key="a"))
    assert part.entries[0].level.pass_ == 3_001, "the key was not charged twice"


def test_what_was_taken_meanwhile_is_appended_among_those_dispatched_now():
    intake = an_intake()
    intake.hear([a_trigger(1)])
    assert taken(intake) == [(1, 1)]

    (part,) = append(intake, a_trigger(1))

    assert part.entries[0].level.pass_ == intake.table.passes(5, "mail").top


def test_turns_follow_the_arrival_over_all_lines():
    intake = an_intake()
    second = intake.take(Loaded(1, START, {}, {}, []), epoch=1)
    first = intake.partitions[0]

    chosen = intake.choose(
        [
            (first, [a_trigger(9), a_trigger(2), a_trigger(5, "print")]),
            (second, [a_trigger(4, partition=1), a_trigger(7, "print", partition=1)]),
        ]
    )

    shown = sorted(
        (level.pass_, level.seq, entry.trigger.id)
        for parts in chosen
        for part in parts
        for level, entry, _ in part.backlog.shown(part.entries)
    )
    assert [id for _, _, id in shown if id in (2, 4, 9)] == [2, 4, 9]
    assert [id for _, _, id in shown if id in (5, 7)] == [5, 7]
    assert sorted(seq for _, seq, _ in shown) == [1, 2, 3, 4, 5]


# ── a task in more than one place ─────────────────────────────────────────────────────────────


def test_a_newer_version_that_is_read_does_away_with_the_older_place():
    intake = an_intake()
    append(intake, a_trigger(1, version=1))
    append(intake, a_trigger(1, version=2))

    assert only(intake).columns[MAIL].loaded == 1
    assert taken(intake) == [(1, 2)]
    decide(intake, 1, 2)
    assert only(intake).columns[MAIL].loaded == 0 and not intake.places and not intake.known


def test_an_older_version_that_is_read_late_is_done_at_once():
    intake = an_intake()
    intake.hear([a_trigger(1, version=5)])

    append(intake, a_trigger(1, version=4))

    assert only(intake).columns[MAIL].loaded == 0
    assert taken(intake) == [(1, 5)]


def test_what_is_finished_at_an_older_version_stays_known_at_its_newer_one():
    intake = an_intake()
    intake.hear([a_trigger(1, version=5)])

    intake.finished(TaskId(1), 4)
    assert intake.known == {1: 5}
    intake.finished(TaskId(1), 5)
    assert intake.known == {}


def test_what_its_window_drops_leaves_the_table_and_is_news_when_read_again():
    intake = an_intake()
    (part,) = append(intake, a_trigger(1), a_trigger(2))

    intake.merge([(part.backlog, Merge([], [part.entries[1]]))])

    assert set(intake.known) == {1} and set(intake.places) == {1}
    assert taken(intake) == [(1, 1)]


def test_what_is_on_its_way_to_a_grab_stays_known_when_its_window_drops_it():
    intake = an_intake()
    (part,) = append(intake, a_trigger(1))
    assert taken(intake) == [(1, 1)]

    intake.merge([(part.backlog, Merge([], part.entries))])

    assert set(intake.known) == {1} and not intake.places


def test_what_cannot_be_grabbed_is_written_anew_and_its_old_place_is_done_only_then():
    intake = an_intake()
    partition = only(intake)
    append(intake, a_trigger(1), a_trigger(2), early=True)
    assert taken(intake) == [(1, 1), (2, 1)]
    backlog = partition.columns[MAIL]

    intake.write_anew(a_trigger(1))
    assert list(partition.unwritten) == [1] and MAIL in partition.awaiting
    assert backlog.loaded == 2 and TaskId(1) not in partition.remembered
    partition.unwritten.clear()
    append(intake, a_trigger(1))

    assert backlog.loaded == 2 and not partition.anew
    assert taken(intake) == [(1, 1)]
    decide(intake, 1)
    decide(intake, 2)
    assert backlog.loaded == 0


def test_what_cannot_be_grabbed_is_forgotten_when_its_partition_has_gone():
    intake = an_intake()
    append(intake, a_trigger(1))
    assert taken(intake) == [(1, 1)]
    intake.lose(0)

    intake.write_anew(a_trigger(1))

    assert not intake.known


def test_what_cannot_be_grabbed_is_not_written_anew_when_its_task_has_moved_on():
    intake = an_intake()
    partition = only(intake)
    append(intake, a_trigger(1), a_trigger(2), a_trigger(3), early=True)
    assert taken(intake) == [(1, 1), (2, 1), (3, 1)]
    backlog = partition.columns[MAIL]
    decide(intake, 2)
    intake.known[TaskId(2)] = 3  # grabbed at its next version, and running
    intake.hear([a_trigger(1, version=3)])
    assert partition.unwritten == {1: a_trigger(1, version=3)}
    partition.remembered[TaskId(3)] = 3  # its next version stands in the backlog

    for id in (1, 2, 3):
        intake.write_anew(a_trigger(id))

    assert partition.unwritten == {1: a_trigger(1, version=3)} and not partition.anew
    assert intake.known == {2: 3}
    assert backlog.loaded == 0, "their old places are done"


def test_an_elder_that_the_store_names_is_taken_in_if_it_is_news_and_ours():
    intake = an_intake()
    intake.hear([a_trigger(1, version=2)])

    for elder in (a_trigger(1), a_trigger(2, partition=7), a_trigger(3, "fax")):
        intake.found(elder)
    assert (intake.known, len(intake.table)) == ({1: 2}, 1)

    intake.found(a_trigger(4))
    intake.found(a_trigger(1, version=3))

    assert sorted(taken(intake)) == [(1, 3), (4, 1)]


def test_an_elder_that_its_key_waits_for_need_not_wait_for_those_before_it():
    """Its siblings have the places before it, in memory and in the store, and wait for it."""
    intake = an_intake()
    append(intake, *[a_trigger(id, ordering_key="key") for id in (5, 6)])
    intake.table.elders.await_elder("key", TaskId(5))

    intake.hear([a_trigger(id, ordering_key="key") for id in (7, 4)])

    eldest = intake.table.eldest("key")
    assert eldest is not None and eldest.id == 4
    assert list(intake.partitions[0].unwritten) == [7]


def test_what_is_put_back_stands_behind_the_others_of_its_pass():
    intake = an_intake()
    intake.hear([a_trigger(id, fairness_key=f"k{id}") for id in (1, 2, 3)])
    first = intake.table.take(lambda trigger: None)
    assert first is not None and first.trigger.id == 1

    intake.offer_behind(first.trigger)

    assert taken(intake) == [(2, 1), (3, 1), (1, 1)]
    assert intake.known[TaskId(1)] == 1


def test_with_its_partition_everything_of_it_leaves_memory_and_nothing_else():
    intake = an_intake()
    intake.take(Loaded(1, START, {}, {}, []), epoch=1)
    append(intake, a_trigger(1), a_trigger(2))
    append(intake, a_trigger(3, partition=1))
    intake.hear([a_trigger(4, "fax"), a_trigger(5, "fax", partition=1)])

    intake.lose(0)
    intake.lose(0)

    assert set(intake.known) == {3, 5} and set(intake.places) == {3}
    assert list(intake.unhandled) == [5] and list(intake.partitions) == [1]
    assert taken(intake) == [(3, 1)]


def test_a_trigger_in_its_lane_and_in_the_line_leaves_the_line():
    intake = an_intake()
    partition = only(intake)
    trigger = a_trigger(1, fairness_key="a")
    (part,) = append(intake, trigger)
    assert not intake.leave_main(trigger), "it stands in the line only"
    lane = intake.stored.lane(partition, MAIL._replace(lane="fa"))
    intake._stand(trigger.id, lane, Entry(Level(1, 1), trigger, "fa"))

    assert intake.leave_main(trigger)

    assert part.backlog.loaded == 0
    assert [place.backlog for place in intake.places_of(trigger.id)] == [lane]


# ── many at once ──────────────────────────────────────────────────────────────────────────────


def test_no_hint_keeps_those_behind_it_from_being_heard():
    intake = an_intake()
    append(intake, a_trigger(1), early=True)
    intake.hear([a_trigger(2, "print")])
    assert taken(intake) == [(1, 1), (2, 1)]
    intake.known.pop(TaskId(1))
    intake.choose([(only(intake), [a_trigger(3)])])  # under way: nobody of its column may skip
    intake.hear([a_trigger(4)])

    heard = [1, 2, 4, 5]  # appended early, on its way, unwritten, and news
    intake.hear([a_trigger(id, "print" if id == 2 else "mail") for id in heard])
    intake.hear([a_trigger(6, partition=7), a_trigger(7, "fax"), a_trigger(8)])

    assert list(only(intake).unwritten) == [4, 5, 8]


def test_a_decision_counts_as_known_until_the_next_read_begins_and_only_if_made_in_one():
    intake = an_intake()
    rows = [a_trigger(1), a_trigger(2)]
    with intake.reading():
        intake.decided(TaskId(1), 1)
    intake.decided(TaskId(2), 1)
    assert intake.unknown_rows(only(intake), rows) == [a_trigger(2)]

    with intake.reading():
        pass

    assert intake.unknown_rows(only(intake), rows) == rows


def test_what_an_exact_page_brings_need_not_be_written_once_more():
    intake = an_intake()
    intake.choose([(only(intake), [a_trigger(1)])])
    intake.hear([a_trigger(2), a_trigger(3)])

    assert intake.unknown_rows(only(intake), [a_trigger(2)]) == [a_trigger(2)]

    assert list(only(intake).unwritten) == [3]


def test_a_takeover_knows_the_turns_of_keys_and_columns_of_which_only_the_mark_is_left():
    intake = an_intake()
    loaded = Loaded(1, START, {MAIL: Mark(Level(4_000, 7), 4_000)}, {}, [], {MAIL: {"busy": 8_000}})
    partition = intake.take(loaded, epoch=2)
    assert partition.columns[MAIL].ack_level == Level(4_000, 7)

    (part,) = append(intake, a_trigger(1, partition=1, fairness_key="busy"))

    assert part.entries[0].level.pass_ == 9_000


def test_what_is_finished_leaves_its_backlog_too():
    intake = an_intake()
    (part,) = append(intake, a_trigger(1), early=True)
    assert taken(intake) == [(1, 1)]

    intake.finished(TaskId(1), 1)

    assert part.backlog.loaded == 0 and not intake.places
    assert not only(intake).remembered, "the exact read has nothing to skip"


def test_a_kind_whose_handler_has_gone_waits_apart_when_it_is_read():
    intake = an_intake("print")

    append(intake, a_trigger(1))

    assert list(intake.unhandled) == [1] and intake.known == {1: 1} and taken(intake) == []
