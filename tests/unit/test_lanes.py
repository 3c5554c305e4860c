"""The lanes of one column: whose turn it is, what is behind what, and what is forgotten."""

from __future__ import annotations

import gc
from itertools import pairwise
from random import Random

import pytest

from holdfast.dispatch.lanes import GROUPS_MAX, LANES_MAX, Group, Item, Lanes
from holdfast.dispatch.passes import STRIDE, Passes
from holdfast.store import Level
from holdfast.task import TaskId
from holdfast.testing.build import a_trigger


class Rig:
    """Lanes of a column, and who is alive and held in it."""

    def __init__(self, mode="count"):
        self.passes = Passes(rng=Random(0))
        self.passes.switch(mode)
        self.held = set()
        self.alive = {}
        self.lanes = Lanes(self.passes, self.held, self.is_alive)

    def is_alive(self, item):
        return self.alive.get(item.trigger.id) is item

    def item(self, id, key="a", pass_=1, **fields):
        item = Item(a_trigger(id, fairness_key=key, **fields), Level(pass_, id), id)
        self.alive[item.trigger.id] = item
        return item

    def divert(self, *ids, key="a", **fields):
        for id in ids:
            self.lanes.divert(self.item(id, key, **fields))

    def forget(self, *ids):
        for id in ids:
            del self.alive[id]
            assert self.lanes.forget(TaskId(id))

    def serve(self, most=10**6, ran_s=None):
        """The ids that come to their turn, and with which pass."""
        found = []
        while len(found) < most and (first := self.lanes.first()) is not None:
            level, item = first
            self.lanes.pop(item)
            del self.alive[item.trigger.id]
            if ran_s is not None:
                self.lanes.charge(item.trigger, ran_s)
            found.append((item.trigger.id, level.pass_))
        return found

    def ids(self, most=10**6):
        return [id for id, _ in self.serve(most)]


# ── turns ─────────────────────────────────────────────────────────────────────────────────────


def test_keys_take_turns_one_step_behind_their_last():
    rig = Rig()
    rig.divert(1, 2, 3, key="a")
    rig.divert(4, 5, key="b")

    assert rig.serve() == [
        (1, 1 + STRIDE), (4, 1 + STRIDE), (2, 1 + 2 * STRIDE), (5, 1 + 2 * STRIDE),
        (3, 1 + 3 * STRIDE),
    ]  # fmt: skip


def test_lanes_of_one_fairness_key_share_its_turns_by_level():
    rig = Rig()
    rig.divert(1, 4, key="a", ordering_key="x")
    rig.divert(2, 3, key="a", ordering_key="y")
    rig.divert(5, 6, key="b")

    assert rig.ids() == [1, 5, 2, 6, 3, 4]


def test_a_rest_gives_no_credit_and_takes_no_turn_away():
    rig = Rig()
    rig.divert(1, 2, 3)
    last = rig.serve()[-1][1]
    assert not rig.lanes

    rig.divert(4)
    assert rig.serve() == [(4, last + STRIDE)], "its last turn is still known"
    rig.passes.dispatched(50_000)
    rig.divert(5)
    assert rig.serve() == [(5, 50_000)], "long after it, it starts at the top"


def test_a_key_stays_known_while_one_of_its_lanes_goes_on():
    rig = Rig()
    rig.divert(1, key="a", ordering_key="x")
    rig.divert(2, 3, key="a", ordering_key="y")
    passes = [pass_ for _, pass_ in rig.serve()]

    assert passes == [1 + STRIDE, 1 + 2 * STRIDE, 1 + 3 * STRIDE]


def test_a_held_lane_waits_for_its_release():
    rig = Rig()
    rig.held.add("fa")
    rig.divert(2, 1)
    rig.divert(3, key="b")
    assert rig.ids() == [3]

    rig.held.clear()
    assert rig.ids() == []
    rig.lanes.release("fa")

    assert rig.ids() == [1, 2]
    rig.lanes.release("fa")
    assert rig.ids() == []


def test_a_lane_that_is_held_while_it_was_ready_does_not_go_on():
    rig = Rig()
    rig.divert(1, 2)
    rig.divert(3, key="b")

    rig.held.add("fa")

    assert rig.ids() == [3]


def test_it_counts_what_is_held_back():
    rig = Rig()
    rig.held.add("fa")
    rig.divert(1, 2, 3)
    rig.divert(4, 5, key="b")
    assert rig.lanes.held_back == 3

    rig.lanes.store("fa", "a", 0)
    rig.divert(6)

    assert rig.lanes.held_back == 4, "also what waits behind the stored part"


# ── the stored part ───────────────────────────────────────────────────────────────────────────


def test_what_comes_from_the_line_waits_behind_what_every_partition_has_stored():
    rig = Rig()
    rig.lanes.store("fa", "a", 0)
    rig.lanes.store("fa", "a", 1)
    rig.divert(8, 7)
    rig.lanes.resume("fa", rig.item(3))
    assert rig.ids() == [3]
    rig.lanes.resume("fa", rig.item(9))

    rig.lanes.unstore("fa", 0)
    assert rig.ids(most=1) == [9]
    rig.lanes.unstore("fa", 1)

    assert rig.ids() == [7, 8] and not rig.lanes


def test_a_lane_is_there_as_long_as_something_of_it_is_stored():
    rig = Rig()
    rig.lanes.store("fa", "a", 0)
    assert "fa" in rig.lanes and rig.lanes

    rig.lanes.unstore("fa", 0)

    assert "fa" not in rig.lanes and not rig.lanes
    rig.lanes.unstore("fa", 0)


def test_when_the_stored_part_is_used_up_the_rest_is_merged_by_level():
    rig = Rig()
    rig.lanes.store("fa", "a", 0)
    rig.divert(2, 5)
    for id in (4, 1):
        rig.lanes.resume("fa", rig.item(id))

    rig.lanes.unstore("fa", 0)

    assert rig.ids() == [1, 2, 4, 5]


# ── what is forgotten ─────────────────────────────────────────────────────────────────────────


def test_whoever_leaves_is_no_longer_aside():
    rig = Rig()
    rig.divert(1, 2)
    assert rig.lanes.aside == {1, 2}

    assert rig.ids(most=1) == [1]
    assert rig.lanes.aside == {2}
    rig.forget(2)

    assert rig.lanes.aside == set() and not rig.lanes.forget(TaskId(2))
    assert rig.ids() == [] and not rig.lanes


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("held", [False, True])
def test_the_dead_do_not_fill_memory(stored, held):
    rig = Rig()
    if held:
        rig.held.add("fa")
    if stored:
        rig.lanes.store("fa", "a", 0)
    rig.divert(1, 2, 3)
    for turn in range(1, 30):
        ids = range(turn * 100, turn * 100 + 100)
        rig.divert(*ids)
        rig.forget(*ids)
        assert sum(1 for _ in rig.lanes.waiting()) <= 3 + 100 + 64 + 4

    rig.held.clear()
    rig.lanes.unstore("fa", 0)
    rig.lanes.release("fa")
    assert rig.ids() == [1, 2, 3] and not rig.lanes


def test_lanes_of_the_dead_are_forgotten():
    rig = Rig()
    for number in range(300):
        rig.held.add(f"fk{number}")
        rig.divert(number, key=f"k{number}")

    rig.forget(*range(300))

    assert sum(f"fk{number}" in rig.lanes for number in range(300)) <= 64 + 1


def test_those_who_are_alive_keep_their_turns_when_the_dead_are_let_go_of():
    rig = Rig()
    rig.divert(*range(1, 400, 2), key="a")
    rig.divert(*range(2, 401, 2), key="b")
    rig.forget(*range(1, 391))

    assert rig.ids() == [391, 392, 393, 394, 395, 396, 397, 398, 399, 400]


@pytest.mark.parametrize("mode", ["count", "cost"])
def test_keys_that_came_once_do_not_fill_memory(mode):
    rig = Rig(mode)
    for number in range(3 * GROUPS_MAX):
        rig.divert(number, key=f"k{number}")
        assert [id for id, _ in rig.serve(ran_s=0.5)] == [number]
        rig.passes.dispatched(rig.passes.top + 2 * STRIDE)

    gc.collect()
    assert 0 < sum(type(found) is Group for found in gc.get_objects()) <= GROUPS_MAX + 2


def test_keys_that_wait_are_remembered_however_many_come_and_go():
    rig = Rig()
    rig.divert(1, 2, 3)
    ((_, before),) = rig.serve(most=1)
    rig.held.add("fa")
    for number in range(10, GROUPS_MAX + 300):
        rig.divert(number, key=f"k{number}")
        rig.ids()
    rig.held.clear()
    rig.lanes.release("fa")

    assert rig.serve(most=1) == [(2, max(before + STRIDE, rig.passes.top))]


def test_there_is_room_for_a_hundred_lanes():
    rig = Rig()
    for number in range(LANES_MAX):
        assert rig.lanes.has_room
        rig.divert(number, key=f"k{number}")

    assert LANES_MAX == 100 and not rig.lanes.has_room


# ── by cost ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("ran_s", [0.01, 3.0])
def test_where_all_cost_the_same_a_turn_is_one_step(ran_s):
    rig = Rig("cost")
    rig.divert(*range(1, 6))

    passes = [pass_ for _, pass_ in rig.serve(ran_s=ran_s)]

    steps = [after - before for before, after in pairwise(passes[1:])]
    assert steps == [STRIDE] * 3


def test_a_new_key_is_taken_for_one_of_the_usual_cost():
    rig = Rig("cost")
    rig.divert(*range(1, 4))
    rig.serve(ran_s=0.5)

    top = rig.passes.top
    rig.divert(9, key="new")

    assert rig.serve() == [(9, top + STRIDE)]


def test_what_a_key_costs_is_learnt_little_by_little():
    rig = Rig("cost")
    rig.divert(*range(1, 9))
    rig.serve(most=3, ran_s=1.0)
    ((_, before),) = rig.serve(most=1, ran_s=2.0)  # for once, twice as long

    ((_, after),) = rig.serve(most=1)

    # The extra second is charged in full, and a fifth of it is expected the next time.
    assert 1.9 * STRIDE < after - before < 2.3 * STRIDE


def test_a_run_that_nobody_took_a_turn_for_is_not_charged():
    rig = Rig("cost")
    rig.divert(1, 2, 3, 4)
    _, _, (_, before) = rig.serve(most=3, ran_s=1.0)

    rig.lanes.charge(a_trigger(77, fairness_key="a"), 1.0)
    rig.lanes.charge(a_trigger(78, fairness_key="nobody"), 1.0)

    assert rig.serve() == [(4, before + STRIDE)]
