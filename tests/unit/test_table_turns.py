"""Kinds with turns of their own: served so often while the others are served once."""

from collections import Counter
from itertools import count, groupby
from random import Random

import pytest

from holdfast.booking import Full
from holdfast.dispatch.table import TriggerTable
from holdfast.store import Level
from holdfast.testing.build import a_trigger


def a_table(*kinds, many=500, order="fair", **turns):
    """A table with so many triggers of each kind, one kind after the other."""
    table = TriggerTable(rng=Random(0), order=order, size_max=20_000, turns=turns)
    ids = count(1)
    for kind in kinds:
        fill(table, kind, ids, many)
    return table


def fill(table, kind, ids, many, **fields):
    for _ in range(many):
        id = next(ids)
        table.add(a_trigger(id, kind, **fields), Level(1, id))


def room(trigger):
    return None


def full_for(*kinds):
    return lambda trigger: Full() if trigger.kind in kinds else None


def served(table, many, book=room):
    """The kinds of the next triggers."""
    return "".join(table.take(book).trigger.kind for _ in range(many))


def test_a_kind_with_three_turns_is_served_three_times_while_another_is_served_once():
    table = a_table("x", "y", x=3)

    kinds = served(table, 400)

    assert Counter(kinds) == {"x": 300, "y": 100}
    assert max(len(list(run)) for _, run in groupby(kinds)) == 3, "and not in bursts"


def test_half_a_turn_is_one_turn_while_others_have_two():
    table = a_table("x", "y", "z", x=0.5)

    assert Counter(served(table, 500)) == {"x": 100, "y": 200, "z": 200}


def test_two_and_a_half_turns_are_five_while_others_have_two():
    assert Counter(served(a_table("x", "y", x=2.5), 350)) == {"x": 250, "y": 100}


def test_very_few_turns_count_as_a_thousandth():
    table = a_table("x", "y", many=5_000, x=1e-300)

    assert served(table, 3_003).count("x") == 3


@pytest.mark.parametrize("turns", [{}, {"x": 1.0, "y": 1, "z": 1.0}, {"other": 3}])
def test_kinds_with_one_turn_each_go_one_to_one_as_before(turns):
    table = a_table("x", "y", "z", **turns)

    assert served(table, 300) == "xyz" * 100


def test_a_kind_that_was_full_loses_only_its_turn():
    table = a_table("x", "y", "z", x=3)
    assert served(table, 200, full_for("x")) == "yz" * 100
    table.freed()

    kinds = served(table, 400)

    assert max(len(list(run)) for _, run in groupby(kinds)) <= 4, "no turns to catch up"
    assert Counter(kinds)["x"] == pytest.approx(240, abs=2)


def test_a_kind_that_was_empty_gathers_no_turns():
    table, ids = a_table("y", x=3), count(10_000)
    served(table, 300)
    fill(table, "x", ids, 100)

    assert Counter(served(table, 40)) == {"x": 30, "y": 10}


def test_a_kind_that_comes_one_at_a_time_has_no_more_than_its_turns():
    table, ids = a_table("y", x=3), count(10_000)
    kinds = ""
    for _ in range(200):
        if not table.size_of(5, "x"):
            fill(table, "x", ids, 1)
        kinds += served(table, 1)

    assert Counter(kinds)["x"] == pytest.approx(150, abs=2)


def test_what_was_dropped_and_comes_again_costs_the_others_nothing():
    table = a_table("x", "y", x=3)
    kinds = ""
    for id in range(10_000, 10_200):
        table.add(a_trigger(id, "z"), Level(1, id))
        table.remove(id)
        kinds += served(table, 2)

    assert Counter(kinds) == {"x": 300, "y": 100}


def test_turns_count_within_a_priority_and_priorities_stay_strict():
    table, ids = a_table("x", "y", x=3), count(10_000)
    kinds = ""
    for _ in range(100):
        fill(table, "first", ids, 1, priority=0)
        assert served(table, 1) == "first"
        kinds += served(table, 4)

    assert Counter(kinds) == {"x": 300, "y": 100}


def test_with_order_arrival_turns_are_ignored():
    table = TriggerTable(rng=Random(0), order="arrival", turns={"x": 3.0})
    for id in range(1, 41):
        table.add(a_trigger(id, "y" if id % 2 else "x"), Level(1, id))

    assert served(table, 40) == "yx" * 20
