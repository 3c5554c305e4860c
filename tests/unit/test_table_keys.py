"""The trigger table: keys set aside, triggers taken out, and random histories against a model."""

from __future__ import annotations

import gc
from collections import Counter
from itertools import count
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.booking import Full
from holdfast.dispatch.columns import Kind, TableColumn
from holdfast.dispatch.lanes import Item, lane_of
from holdfast.dispatch.table import TriggerTable
from holdfast.store import Level
from holdfast.testing.build import a_trigger


def a_table(*keys, order="fair", **fields):
    """A table with one trigger of one kind for each fairness key named."""
    table = TriggerTable(rng=Random(0), order=order)
    for id, key in enumerate(keys, start=1):
        add(table, id, fairness_key=key, **fields)
    return table


def add(table, id, kind="mail", level=None, **fields):
    return table.add(a_trigger(id, kind, **fields), level or Level(1, id))


def refusing(*keys):
    def book(trigger):
        refused = trigger.fairness_key in keys or trigger.ordering_key in keys
        return Full(key_only=True) if refused else None

    return book


def taken(table, book=lambda trigger: None):
    ids = []
    while (item := table.take(book)) is not None:
        ids.append(item.trigger.id)
    return ids


@pytest.mark.req("TASK-42")
@pytest.mark.parametrize("order", ["fair", "arrival"])
def test_triggers_of_a_key_that_is_set_aside_do_not_count_as_head(order):
    table, asked = a_table("a", "a", "b", "a", "b", order=order), []

    def book(trigger):
        asked.append(trigger.id)
        return refusing("a")(trigger)

    assert [table.take(book).trigger.id, table.take(book).trigger.id] == [3, 5]
    assert asked == [1, 3, 5], "only heads were asked, and the key once"
    assert table.take(book) is None and len(table) == 3
    assert table.keys_held == ["a"]


@pytest.mark.req("TASK-42")
def test_a_busy_ordering_key_is_set_aside_and_the_rest_of_its_fairness_key_goes_on():
    table = TriggerTable(rng=Random(0))
    for id, ordering_key in enumerate(["o", "o", None, "p"], start=1):
        add(table, id, fairness_key="a", ordering_key=ordering_key)

    assert taken(table, lambda t: Full(key_only=True) if t.ordering_key == "o" else None) == [3, 4]
    table.release("o")

    assert taken(table) == [1, 2]


def test_a_released_key_shares_from_now_on_and_keeps_its_order():
    table = a_table("a", "a", "b")
    assert taken(table, refusing("a")) == [3]
    add(table, 4, fairness_key="b", level=Level(1, 4))
    add(table, 5, fairness_key="a", level=Level(1001, 5))
    add(table, 6, fairness_key="b", level=Level(1001, 6))
    add(table, 7, fairness_key="b", level=Level(2001, 7))

    table.release("a")

    assert taken(table) == [4, 1, 6, 2, 7, 5] and table.keys_held == []


def test_a_key_refused_again_keeps_the_rest_of_its_line_in_order():
    table = a_table(*"aaaaa")
    assert taken(table, refusing("a")) == []

    ids = []
    for _ in range(5):
        table.release("a")
        item = table.take(lambda trigger: None)
        ids.append(item.trigger.id)
        assert taken(table, refusing("a")) == []

    assert ids == [1, 2, 3, 4, 5] and len(table) == 0


def test_a_key_is_set_aside_for_its_kind_at_every_priority_and_for_no_other_kind():
    table, asked = TriggerTable(rng=Random(0)), []
    add(table, 1, "payout", fairness_key="a", priority=1)
    add(table, 2, "payout", fairness_key="a", priority=2)
    add(table, 3, "mail", fairness_key="a", priority=3)

    def book(trigger):
        asked.append(trigger.id)
        return Full(key_only=True) if trigger.kind == "payout" else None

    assert taken(table, book) == [3] and asked == [1, 3]
    table.release("a")
    assert taken(table) == [1, 2]


def test_a_trigger_refused_for_its_fairness_key_is_released_by_it_despite_an_ordering_key():
    table = TriggerTable(rng=Random(0))
    add(table, 1, fairness_key="a", ordering_key="o")
    assert taken(table, refusing("a")) == []

    table.release("a")

    assert table.keys_held == [] and taken(table) == [1]


def test_triggers_without_a_key_are_one_group():
    table = a_table(None, None, "b")

    assert taken(table, lambda t: None if t.fairness_key else Full(key_only=True)) == [3]
    table.release(None)

    assert taken(table) == [1, 2]


def test_a_trigger_that_left_its_lane_and_came_back_is_still_known_to_stand_there():
    table = a_table("a", "a")
    assert taken(table, refusing("a")) == []
    trigger = table.remove(1).trigger
    table.add(trigger, Level(1, 1), lane_of(trigger))

    table.release("a")

    assert {item.trigger.id for item in table.aside(trigger.priority, "mail")} == {1, 2}
    assert taken(table) == [1, 2]


def test_of_two_versions_of_a_task_only_the_newer_one_stands_aside():
    table = a_table("a")
    assert taken(table, refusing("a")) == []
    newer = a_trigger(1, "mail", fairness_key="a", version=3)
    table.add(newer, Level(1, 2), lane_of(newer))

    assert [item.trigger for item in table.aside(newer.priority, "mail")] == [newer]


def test_releasing_a_key_that_is_not_set_aside_does_nothing():
    table = a_table("a")

    table.release("a")

    assert taken(table) == [1]


def test_a_key_that_is_refused_again_and_again_costs_no_scan_of_its_triggers():
    table, moved = TriggerTable(rng=Random(0)), []

    class Counted(Level):
        def __lt__(self, other):
            moved.append(1)
            return tuple(self) < tuple(other)

    for id in range(5000):
        add(table, id, fairness_key="a", level=Counted(1, id))
    taken(table, refusing("a"))
    moved.clear()
    for _ in range(100):
        table.release("a")
        assert table.take(lambda trigger: None) is not None
        taken(table, refusing("a"))

    assert len(moved) < 1000


# ── taking out ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("id", [1, 3, 5])
@pytest.mark.parametrize("order", ["fair", "arrival"])
def test_a_removed_trigger_is_not_given_out(id, order):
    table = a_table(*"aaaaa", order=order)

    assert table.remove(id).trigger.id == id
    assert table.remove(id) is None and len(table) == 4

    assert taken(table) == sorted({1, 2, 3, 4, 5} - {id})


def test_a_removed_trigger_may_come_again_at_its_old_level():
    table = a_table(*"aaa")
    for id in (3, 2):
        table.remove(id)

    assert add(table, 2) and add(table, 3)

    assert taken(table) == [1, 2, 3]


def test_removed_triggers_do_not_stay_in_memory():
    table = TriggerTable(rng=Random(0))
    add(table, 0, level=Level(1, 0))
    for turn in range(50):
        ids = range(1 + turn * 100, 101 + turn * 100)
        for id in ids:
            add(table, id)
        for id in ids:  # lowest first, so that each leaves from the middle
            table.remove(id)

    gc.collect()
    assert sum(type(found) is Item for found in gc.get_objects()) < 200
    assert [item.trigger.id for item in table.waiting()] == [0] and taken(table) == [0]


def test_keys_held_and_released_survive_the_removal_of_most_triggers():
    table = a_table(*"ab" * 200)
    assert taken(table, refusing("a", "b")) == []
    table.release("a")

    for id in range(1, 390):
        table.remove(id)

    assert taken(table) == [391, 393, 395, 397, 399]
    table.release("b")
    assert taken(table) == [390, 392, 394, 396, 398, 400]


def test_dropping_a_partition_leaves_the_others():
    table = TriggerTable(rng=Random(0))
    for id in range(1, 9):
        add(table, id, f"kind{id % 2}", partition=id % 4, fairness_key="a" if id < 5 else "b")
    assert taken(table, refusing("a", "b")) == []

    dropped = table.drop_partition(3)

    assert [item.trigger.id for item in dropped] == [3, 7] and len(table) == 6
    table.release("a")
    table.release("b")
    assert sorted(taken(table)) == [1, 2, 4, 5, 6, 8]


def test_a_task_stands_in_the_table_once_at_its_newest_version():
    table = TriggerTable(rng=Random(0), size_max=2)
    add(table, 1, version=2, level=Level(1, 1))
    add(table, 2, level=Level(1, 2))

    assert add(table, 1, version=2, level=Level(1, 3)), "the same again"
    assert add(table, 1, version=1, level=Level(1, 4)), "an older one"
    assert add(table, 1, version=3, level=Level(1, 5)), "a newer one, though the table is full"

    items = list(table.waiting())
    assert [(item.trigger.id, item.trigger.version) for item in items] == [(2, 1), (1, 3)]
    assert len(table) == 2


def test_a_newcomer_of_a_lower_level_becomes_the_head_and_brings_its_own_number():
    table = TriggerTable(rng=Random(0), order="arrival")
    add(table, 1, "x", level=Level(5, 1))
    add(table, 2, "y", level=Level(5, 2))
    add(table, 3, "x", level=Level(1, 3))

    assert taken(table) == [2, 3, 1]


def test_kinds_that_came_once_do_not_fill_the_table():
    table = TriggerTable(rng=Random(0))
    for id in range(2000):
        add(table, id, f"kind{id}")
        assert table.take(lambda trigger: None).trigger.id == id

    gc.collect()
    alive = Counter(type(found) for found in gc.get_objects())
    assert 0 < alive[TableColumn] < 300 and 0 < alive[Kind] < 300
    add(table, 1, "kind1")
    assert taken(table) == [1] and len(table) == 0


# ── random histories ──────────────────────────────────────────────────────────────────────────


class Model:
    """The table as the requirements tell it, without any thought of cost."""

    def __init__(self, order: str) -> None:
        self.order = order
        self.items: list[dict] = []
        self.turns: dict[tuple[int, str], int] = {}
        self.clock = count(1)
        self.full: set[str] = set()
        self.held: set[tuple[str, str | None]] = set()

    def add(self, id, kind, priority, key, level) -> None:
        if not any((i["priority"], i["kind"]) == (priority, kind) for i in self.items):
            self.turns[priority, kind] = next(self.clock)
        arrival = next(self.clock)
        item = dict(id=id, kind=kind, priority=priority, key=key, level=level, arrival=arrival)
        self.items.append(item)

    def heads(self) -> list[dict]:
        heads: dict[tuple[int, str], dict] = {}
        for item in sorted(self.items, key=lambda item: item["level"]):
            if item["kind"] not in self.full and (item["kind"], item["key"]) not in self.held:
                heads.setdefault((item["priority"], item["kind"]), item)
        return sorted(heads.values(), key=self.place)

    def place(self, item) -> tuple[int, int]:
        turn = self.turns[item["priority"], item["kind"]]
        return item["priority"], item["arrival"] if self.order == "arrival" else turn

    def take(self, full, held):
        while heads := self.heads():
            head = heads[0]
            if head["kind"] in full:
                self.full.add(head["kind"])
            elif (head["kind"], head["key"]) in held:
                self.held.add((head["kind"], head["key"]))
            else:
                self.items.remove(head)
                self.turns[head["priority"], head["kind"]] = next(self.clock)
                return head["id"]
        return None


def a_history(seed, *, holds=False):
    """Steps from a seed: lists that Hypothesis draws itself are too short to fill the table."""
    rng = Random(seed)
    kinds, keys = "xyz", ["a", "b", None]
    for id in range(1, 120):
        # A key's own passes only ever grow; without holds any order will do.
        pass_ = id if holds else rng.randint(1, 5)
        yield "add", rng.choice(kinds), rng.randrange(3), rng.choice(keys), pass_
        full = rng.sample(kinds, rng.choice([0, 0, 0, 1, 2]))
        held = [(rng.choice(kinds), rng.choice(keys)) for _ in range(rng.randrange(4) * holds)]
        yield from [("take", full, held)] * rng.randrange(3)
        if rng.random() < 0.3:
            yield rng.choice([("freed",), ("release", rng.choice(keys))])
        if rng.random() < 0.2:
            yield "remove", rng.randint(max(1, id - 20), id)


@given(st.integers(0, 2**32), st.sampled_from(["fair", "arrival"]))
@settings(max_examples=150, deadline=None)
def test_the_table_gives_out_what_the_simplest_model_gives_out(seed, order):
    table, model, ids = TriggerTable(rng=Random(0), order=order), Model(order), count(1)
    endings = [("freed",), ("release", "a"), ("release", "b"), ("release", None)]

    for step in [*a_history(seed), *endings]:
        play(step, table, model, ids)
        assert len(table) == len(model.items)
    for _ in range(len(table) + 1):
        play(("take", [], []), table, model, ids)

    assert len(table) == 0 and table.keys_held == []


def play(step, table, model, ids):
    match step:
        case "add", kind, priority, key, pass_:
            id = next(ids)
            assert add(table, id, kind, Level(pass_, id), priority=priority, fairness_key=key)
            model.add(id, kind, priority, key, Level(pass_, id))
        case "take", full, held:
            item = table.take(lambda trigger: refusal(trigger, full, held))
            assert (item and item.trigger.id) == model.take(full, held)
        case ("freed",):
            table.freed()
            model.full.clear()
        case "release", key:
            table.release(key)
            model.held = {(kind, held) for kind, held in model.held if held != key}
        case "remove", id:
            item = table.remove(id)
            assert (item is not None) == any(found["id"] == id for found in model.items)
            model.items = [found for found in model.items if found["id"] != id]


@given(st.integers(0, 2**32), st.sampled_from(["fair", "arrival"]))
@settings(max_examples=150, deadline=None)
def test_held_keys_lose_nothing_and_keep_their_order_and_priorities_stay_strict(seed, order):
    table, waiting, ids = TriggerTable(order=order, rng=Random(0)), {}, count(1)
    full_now, held_now = set(), set()

    def take(full, held):
        item = table.take(lambda trigger: refusal(trigger, full, held))
        full_now.update(full)
        held_now.update(held)
        if item is None:
            free = [t for t in waiting.values() if t.kind not in full_now]
            assert all((t.kind, t.fairness_key) in held_now for t in free)
            return
        taken = waiting.pop(item.trigger.id)
        assert taken.kind not in full and (taken.kind, taken.fairness_key) not in held
        before = [t for t in waiting.values() if t.kind not in full_now]
        before = [t for t in before if (t.kind, t.fairness_key) not in held_now]
        assert not [t for t in before if t.priority < taken.priority]
        assert not [t for t in before if _alike(t, taken) and t.id < taken.id]

    for step in a_history(seed, holds=True):
        match step:
            case "add", kind, priority, key, pass_:
                trigger = a_trigger(next(ids), kind, priority=priority, fairness_key=key)
                table.add(trigger, Level(pass_, trigger.id))
                waiting[trigger.id] = trigger
            case "take", full, held:
                take(full, held)
            case ("freed",):
                table.freed()
                full_now.clear()
            case "release", key:
                table.release(key)
                held_now -= {(kind, held) for kind, held in held_now if held == key}
            case "remove", id:
                assert (table.remove(id) is not None) == (waiting.pop(id, None) is not None)
        assert len(table) == len(waiting)
    table.freed()
    full_now.clear()
    held_now.clear()
    for key in ["a", "b", None]:
        table.release(key)
    for _ in range(len(table) + 1):
        take([], [])
    assert len(table) == 0 and table.keys_held == []


def _alike(one, other):
    return (one.priority, one.kind, one.fairness_key) == (
        other.priority,
        other.kind,
        other.fairness_key,
    )


def refusal(trigger, full, held):
    if trigger.kind in full:
        return Full()
    return Full(key_only=True) if (trigger.kind, trigger.fairness_key) in held else None
