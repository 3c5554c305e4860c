"""One column of the trigger table: out of order, out of the middle, and what it counts."""

from __future__ import annotations

from random import Random

import pytest

from holdfast.booking import Full
from holdfast.dispatch.table import COLUMNS_KEPT_MAX, TriggerTable
from holdfast.store import Level
from holdfast.task import TaskId
from holdfast.testing.build import a_trigger


def a_table(order="fair"):
    return TriggerTable(rng=Random(0), order=order)


def add(table, id, pass_=1, kind="mail", seq=None, **fields):
    return table.add(a_trigger(id, kind, **fields), Level(pass_, seq or id))


def taken(table, most=10**6, book=lambda trigger: None):
    ids = []
    while len(ids) < most and (item := table.take(book)) is not None:
        ids.append(item.trigger.id)
    return ids


def holding(*keys):
    return lambda trigger: Full(key_only=True) if trigger.fairness_key in keys else None


def test_what_is_taken_moves_the_top_pass_and_never_back():
    table = a_table()
    for id, pass_ in ((1, 4), (2, 7), (3, 5)):
        add(table, id, pass_)
    tops = []
    for _ in range(3):
        table.take(lambda trigger: None)
        tops.append(table.passes(5, "mail").top)

    assert tops == [4, 5, 7]


def test_a_newcomer_before_those_out_of_order_brings_its_column_forward():
    table = a_table(order="arrival")
    add(table, 1, pass_=9, seq=50)
    add(table, 2, pass_=5, seq=40)  # out of order
    table.remove(TaskId(1))
    add(table, 3, kind="other", seq=20)

    add(table, 4, pass_=2, seq=10)

    assert taken(table) == [4, 3, 2]


def test_what_is_read_from_a_stored_lane_brings_its_column_forward():
    table = a_table(order="arrival")
    add(table, 1, pass_=5_000, seq=50)
    add(table, 2, kind="other", seq=20)

    table.add(a_trigger(3, fairness_key="a"), Level(1, 10), "fa")

    assert taken(table) == [3, 2, 1]


def test_removed_ones_out_of_order_leave_memory_and_the_rest_keeps_its_order():
    table = a_table()
    add(table, 1_000, pass_=1_000)
    rng = Random(1)
    passes = rng.sample(range(1, 900), 300)
    for id, pass_ in enumerate(passes, start=1):
        add(table, id, pass_)
    gone = set(rng.sample(range(1, 301), 250))
    for id in gone:
        table.remove(TaskId(id))

    left = [id for id in range(1, 301) if id not in gone]

    assert taken(table) == [*sorted(left, key=lambda id: passes[id - 1]), 1_000]


def test_a_column_counts_what_was_dispatched_past_those_who_wait_in_lanes():
    table = a_table()
    for id, key in enumerate("abbab", start=1):
        add(table, id, fairness_key=key)
    assert taken(table, book=holding("a")) == [2, 3, 5]
    ((_, _, column),) = table.with_lanes()
    assert column.served == 3

    table.release("a")

    assert taken(table) == [1, 4]
    assert column.served == 3, "what stood in a lane is not one of the others"


@pytest.mark.parametrize("order", ["fair", "arrival"])
def test_many_removed_from_the_middle_cost_nobody_a_place(order):
    table = a_table(order)
    for id in range(1, 401):
        add(table, id, pass_=id)
    for id in range(2, 400, 2):
        table.remove(TaskId(id))
        if id % 8 == 0:
            add(table, id + 1_000, pass_=id)  # before those that stand behind

    expected = sorted([*range(1, 400, 2), 400, *range(1_008, 1_400, 8)], key=lambda id: id % 1_000)

    assert [item.trigger.id for item in table.waiting()] == expected
    assert taken(table) == expected


def test_the_size_of_a_column_counts_also_what_is_held_back():
    table = a_table()
    for id, key in enumerate("aabb", start=1):
        add(table, id, fairness_key=key)
    taken(table, book=holding("a"))

    sizes = [table.size_of(*place) for place in ((5, "mail"), (5, "other"), (1, "mail"))]

    assert sizes == [2, 0, 0]


# ── order by arrival ──────────────────────────────────────────────────────────────────────────


def test_of_two_kinds_with_the_same_number_the_one_that_came_here_first_goes_first():
    table = a_table(order="arrival")
    for id, kind in ((1, "b"), (2, "a"), (3, "c")):
        add(table, id, kind=kind, seq=7)

    assert taken(table) == [1, 2, 3]


def test_when_a_head_is_removed_its_column_waits_for_the_next_one():
    table = a_table(order="arrival")
    for id, kind in ((1, "x"), (2, "y"), (3, "x")):
        add(table, id, pass_=1, kind=kind)

    table.remove(TaskId(1))

    assert taken(table) == [2, 3]


def test_when_a_head_out_of_order_is_removed_its_column_may_come_earlier():
    table = a_table(order="arrival")
    add(table, 1, pass_=5, kind="x", seq=1)
    add(table, 2, pass_=5, kind="y", seq=2)
    add(table, 3, pass_=1, kind="x", seq=3)  # the head of x now

    table.remove(TaskId(3))

    assert taken(table) == [1, 2]


def test_what_waits_is_listed_by_column_also_where_all_of_one_is_held_back():
    table = a_table(order="arrival")
    for id, kind, key in ((1, "x", "a"), (2, "y", "b"), (3, "x", "a"), (4, "y", "b")):
        add(table, id, kind=kind, fairness_key=key)
    assert taken(table, book=holding("a", "b")) == []

    assert [item.trigger.id for item in table.waiting()] == [1, 3, 2, 4]


# ── what it knows of tasks, lanes and kinds ───────────────────────────────────────────────────


def test_a_newer_version_takes_the_place_of_an_older_one_and_the_same_again_changes_nothing():
    table = a_table()
    add(table, 1, pass_=3)
    old, new = a_trigger(1), a_trigger(1, version=2)
    assert table.add(old, Level(9, 9))
    assert table.level_of(old) == Level(3, 1)

    assert table.add(new, Level(5, 5))

    assert (table.level_of(old), table.level_of(new)) == (None, Level(5, 5))
    assert (table.level_of(a_trigger(7)), table.size_of(5, "mail")) == (None, 1)


def test_it_tells_which_lanes_there_are_which_are_held_and_who_stands_in_them():
    table = a_table()
    a, b = a_trigger(1, fairness_key="a"), a_trigger(2, fairness_key="b")
    assert not table.has_lane(a) and not table.is_held("mail", "fa")
    for trigger in (a, b):
        table.add(trigger, Level(1, trigger.id))
    assert not table.has_lane(a) and list(table.aside(5, "mail")) == []

    table.take(holding("a"))

    assert table.has_lane(a) and not table.has_lane(b)
    assert not table.has_lane(a._replace(kind="other"))
    assert not table.has_lane(a._replace(priority=1))
    assert table.is_held("mail", "fa")
    assert not table.is_held("mail", "fb") and not table.is_held("other", "fa")
    assert [item.trigger.id for item in table.aside(5, "mail")] == [1]
    assert list(table.aside(5, "other")) == [] == list(table.aside(1, "mail"))
    assert [(priority, kind) for priority, kind, _ in table.with_lanes()] == [(5, "mail")]


def test_a_table_holds_ten_thousand_unless_it_is_told_otherwise():
    table = a_table()

    assert all(add(table, id) for id in range(1, 10_001))

    assert not table.has_room and not add(table, 10_001)
    table.remove(TaskId(1))
    assert table.has_room


def test_a_kind_that_is_full_or_held_is_still_so_when_its_column_was_forgotten():
    table = a_table()
    add(table, 1, kind="full")
    add(table, 2, kind="held", fairness_key="a")
    taken(table, book=lambda t: Full(key_only=t.kind == "held"))
    table.remove(TaskId(1))
    table.remove(TaskId(2))
    for id in range(10, 10 + 2 * COLUMNS_KEPT_MAX):
        add(table, id, kind=f"kind{id}")
        assert taken(table) == [id]
    add(table, 3, kind="full")
    add(table, 4, kind="held", fairness_key="a")

    assert taken(table) == [], "nobody has freed or released them"

    table.freed()
    table.release("a")
    assert taken(table) == [3, 4]


def test_a_kind_that_comes_back_after_its_column_was_forgotten_has_no_more_than_its_turn():
    table = a_table()
    add(table, 1, kind="back")
    table.remove(TaskId(1))
    for id in range(10, 10 + 2 * COLUMNS_KEPT_MAX):
        add(table, id, kind=f"kind{id}")
        assert taken(table) == [id]
    for id in (1, 2, 3):
        add(table, id, kind="other")
    for id in (4, 5, 6):
        add(table, id, kind="back")

    assert taken(table) == [1, 4, 2, 5, 3, 6]
