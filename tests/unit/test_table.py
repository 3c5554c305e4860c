"""The trigger table: which trigger is started next."""

from itertools import count, groupby
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.booking import Full
from holdfast.dispatch.slots import FixedSlots
from holdfast.dispatch.table import TriggerTable
from holdfast.store import Level
from holdfast.testing.build import START, a_trigger


def a_table(*kinds, order="arrival", **fields):
    """A table with one trigger a kind named, numbered in this order."""
    table = TriggerTable(rng=Random(0), order=order)
    for id, kind in enumerate(kinds, start=1):
        add(table, id, kind, **fields)
    return table


def add(table, id, kind="mail", level=None, **fields):
    return table.add(a_trigger(id, kind, **fields), level or Level(1, id))


def shown(table):
    """The columns of the table in their order: EMAIL(1,3) MESSAGE(2)."""
    columns = groupby(table.waiting(), lambda item: (item.trigger.priority, item.trigger.kind))
    return " ".join(f"{kind}({','.join(str(i.arrival) for i in c)})" for (_, kind), c in columns)


def room(trigger):
    return None


def full_for(*kinds):
    return lambda trigger: Full() if trigger.kind in kinds else None


def taken(table, book=room):
    """The ids that the table gives out until nothing more can be booked."""
    ids = []
    while (item := table.take(book)) is not None:
        ids.append(item.trigger.id)
    return ids


class Asked:
    """Books like the policy given, and notes who asked."""

    def __init__(self, policy=room):
        self.policy = policy
        self.ids = []

    def __call__(self, trigger):
        self.ids.append(trigger.id)
        return self.policy(trigger)


# ── looking ahead ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("TASK-30")
def test_the_table_never_holds_more_than_the_look_ahead_limit():
    table = TriggerTable(rng=Random(0), size_max=3)

    accepted = [add(table, id, priority=id) for id in range(1, 6)]

    assert accepted == [True, True, True, False, False] and len(table) == 3
    table.take(room)
    assert add(table, 4) and not add(table, 5) and len(table) == 3


@pytest.mark.req("TASK-32")
def test_the_trigger_of_a_higher_priority_that_arrived_last_is_started_first():
    table = a_table("mail", "mail", "mail", priority=5)
    add(table, 4, "push", priority=4)

    assert taken(table) == [4, 1, 2, 3]


@pytest.mark.req("TASK-33")
@pytest.mark.parametrize("order", ["fair", "arrival"])
def test_ten_thousand_triggers_of_a_full_kind_do_not_delay_ten_of_a_free_one(order):
    table = TriggerTable(rng=Random(0), order=order, size_max=10_010)
    for id in range(1, 10_011):
        assert add(table, id, "slow" if id <= 10_000 else "free")
    book = Asked(full_for("slow"))

    assert taken(table, book) == list(range(10_001, 10_011))
    assert len(book.ids) == 11, "the full kind was asked once"


# ── the search ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("TASK-36")
@pytest.mark.parametrize("order", ["fair", "arrival"])
def test_the_search_goes_from_priority_0_to_priority_9(order):
    table = TriggerTable(rng=Random(0), order=order)
    for id, priority in enumerate([9, 3, 0, 5, 7, 1, 8, 2, 6, 4], start=1):
        add(table, id, "mail" if id % 2 else "push", priority=priority)

    assert [table.take(room).trigger.priority for _ in range(10)] == list(range(10))


def test_after_one_hit_the_search_starts_again_from_the_top():
    table, book = a_table("mail", "mail"), Asked()

    assert table.take(book).trigger.id == 1
    assert book.ids == [1], "one hit ends the search"
    add(table, 3, "push", priority=0)

    assert table.take(book).trigger.id == 3


@pytest.mark.req("TASK-39")
def test_inside_a_column_the_order_is_the_level_and_for_one_key_that_of_arrival():
    table = TriggerTable(rng=Random(0))
    for id, level in enumerate([(1, 1), (3, 2), (5, 3), (1, 4), (3, 5)], start=1):
        add(table, id, level=Level(*level), fairness_key="b" if id > 3 else "a")

    assert taken(table) == [1, 4, 2, 5, 3]


@pytest.mark.req("TASK-40")
def test_columns_of_one_priority_are_ordered_by_the_arrival_of_their_heads():
    table = a_table("EMAIL", "MESSAGE", "EMAIL", "PAYOUT", "MESSAGE")

    assert shown(table) == "EMAIL(1,3) MESSAGE(2,5) PAYOUT(4)"


@pytest.mark.req("TASK-41")
def test_taking_a_head_puts_its_column_behind_those_whose_heads_came_earlier():
    table = a_table("EMAIL", "MESSAGE", "EMAIL", "PAYOUT", "MESSAGE")

    assert table.take(room).arrival == 1

    assert shown(table) == "MESSAGE(2,5) EMAIL(3) PAYOUT(4)"
    assert taken(table) == [2, 3, 4, 5]


@pytest.mark.req("TASK-43")
def test_when_the_slots_of_a_kind_are_full_the_next_column_is_tried():
    table, book = a_table("EMAIL", "MESSAGE", "PAYOUT"), Asked(full_for("EMAIL", "MESSAGE"))

    assert table.take(book).trigger.kind == "PAYOUT"
    assert book.ids == [1, 2, 3]


@pytest.mark.req("TASK-44")
def test_a_kind_found_full_is_not_asked_again_at_lower_priorities():
    table, book = TriggerTable(rng=Random(0)), Asked(full_for("mail"))
    for id, (kind, priority) in enumerate([("mail", 1), ("mail", 4), ("mail", 7), ("push", 9)], 1):
        add(table, id, kind, priority=priority)

    assert table.take(book).trigger.kind == "push"
    assert book.ids == [1, 4], "book was called once for the full kind"


@pytest.mark.req("TASK-45")
def test_a_full_kind_keeps_its_place_while_another_is_taken():
    table = a_table("EMAIL", "MESSAGE", "EMAIL", "PAYOUT", "MESSAGE")

    assert table.take(full_for("EMAIL")).arrival == 2

    assert shown(table) == "EMAIL(1,3) PAYOUT(4) MESSAGE(5)"


@pytest.mark.req("TASK-46")
def test_a_trigger_leaves_the_table_only_after_its_slot_was_booked():
    table, seen = a_table("mail"), []

    assert table.take(lambda trigger: seen.append(len(table)) or Full()) is None
    assert seen == [1] and len(table) == 1, "refused: it stays"
    table.freed()
    assert table.take(lambda trigger: seen.append(len(table))).trigger.id == 1

    assert seen == [1, 1] and len(table) == 0, "and while it is being booked it is still there"


def test_a_trigger_whose_booking_raises_stays_in_the_table():
    table = a_table("mail", "push")

    with pytest.raises(ZeroDivisionError):
        table.take(lambda trigger: 1 // 0)

    assert len(table) == 2 and taken(table) == [1, 2]


@pytest.mark.req("TASK-47")
@pytest.mark.parametrize("order", ["fair", "arrival"])
def test_empty_columns_never_stop_the_search_and_refilled_ones_find_their_place(order):
    table = a_table("EMAIL", "MESSAGE", order=order)
    assert taken(table) == [1, 2] and table.take(room) is None

    add(table, 3, "PAYOUT")
    add(table, 4, "EMAIL")
    add(table, 5, "EMAIL", priority=0)
    assert shown(table) == "EMAIL(5) PAYOUT(3) EMAIL(4)"

    assert taken(table) == [5, 3, 4]


@pytest.mark.req("TASK-48")
@given(st.permutations(["a", "b", "c", "d"]), st.sampled_from(["fair", "arrival"]))
def test_the_order_of_kinds_never_depends_on_their_names(names, order):
    table = a_table(*names, *names, order=order)

    assert taken(table) == [1, 2, 3, 4, 5, 6, 7, 8]


@pytest.mark.req("TASK-49")
def test_a_low_priority_trigger_of_a_free_kind_runs_although_another_is_full_at_a_high_one():
    table = a_table("slow", "slow", priority=0)
    add(table, 3, "free", priority=9)

    assert taken(table, full_for("slow")) == [3]


@pytest.mark.req("TASK-50")
@given(st.lists(st.integers(0, 3), max_size=40))
def test_arrival_numbers_keep_the_order_of_each_producer(producers):
    table, ids = TriggerTable(rng=Random(0), order="arrival"), count(1)
    sent = {producer: [] for producer in range(4)}
    for producer in producers:
        sent[producer].append(next(ids))
        add(table, sent[producer][-1], f"kind{producer % 2}")

    arrivals = {item.trigger.id: item.arrival for item in table.waiting()}

    for line in sent.values():
        numbers = [arrivals[id] for id in line]
        assert numbers == sorted(set(numbers))


# ── cost ──────────────────────────────────────────────────────────────────────────────────────


class CountedInt(int):
    compared = 0

    def __lt__(self, other):
        CountedInt.compared += 1
        return int(self) < int(other)


class CountedLevel(Level):
    compared = 0

    def __lt__(self, other):
        CountedLevel.compared += 1
        return tuple(self) < tuple(other)


@pytest.mark.req("TASK-37")
@pytest.mark.parametrize("order", ["fair", "arrival"])
def test_the_cost_of_a_search_grows_with_the_logarithm_of_kinds_and_triggers(order):
    worst = {}
    for size in (64, 512, 2048):
        table = TriggerTable(
            rng=Random(0),
            order=order,
            counting=lambda start: (CountedInt(number) for number in count(start)),
        )
        for id in range(size):  # one kind with all levels shuffled, and as many kinds again
            add(table, id, "mail", level=CountedLevel(id * 7919 % size, id))
            add(table, size + id, f"kind{id}")
        worst[size] = max(compared_by_a_take(table) for _ in range(2 * size))

    for size, compared in worst.items():
        assert compared <= 4 * size.bit_length(), worst


def compared_by_a_take(table):
    CountedInt.compared = CountedLevel.compared = 0
    assert table.take(room) is not None
    return CountedInt.compared + CountedLevel.compared


@pytest.mark.req("TASK-37")
def test_full_kinds_are_asked_once_and_not_in_every_search():
    table, book = (
        TriggerTable(rng=Random(0)),
        Asked(lambda trigger: None if trigger.kind == "free" else Full()),
    )
    for id in range(1000):
        add(table, id, f"full{id}")
    for id in range(1000, 1100):
        add(table, id, "free")

    assert len(taken(table, book)) == 100

    assert len(book.ids) == 1100, "each full kind once, over a hundred searches"
    table.freed()
    taken(table, book)
    assert len(book.ids) == 2100, "and once more after a slot was freed"


# ── fair turns ────────────────────────────────────────────────────────────────────────────────


def test_kinds_with_room_take_turns_however_long_their_columns_are():
    table = TriggerTable(rng=Random(0), size_max=20_000)
    for id in range(10_000):
        add(table, id, "x")
    for id in range(10_000, 10_100):
        add(table, id, "y")

    kinds = [table.take(room).trigger.kind for _ in range(300)]

    assert kinds[:200] == ["x", "y"] * 100 and kinds[200:] == ["x"] * 100


def test_kinds_take_turns_also_when_one_shared_slot_is_freed_at_a_time():
    table, slots, kinds = TriggerTable(rng=Random(0)), FixedSlots(1), []
    for id in range(20):
        add(table, id, "x" if id < 15 else "y")

    for _ in range(12):
        item = table.take(lambda trigger: slots.book(trigger, now=START))
        assert table.take(lambda trigger: slots.book(trigger, now=START)) is None
        kinds.append(item.trigger.kind)
        slots.free(item.trigger)
        table.freed()

    assert kinds == ["x", "y"] * 5 + ["x", "x"]


def test_with_order_arrival_the_kind_that_came_first_goes_first():
    table = a_table("x", "x", "x", "y", "y")

    assert taken(table) == [1, 2, 3, 4, 5]


def test_a_kind_without_room_loses_nothing_but_its_turn():
    table = a_table("x", "x", "x", "y", "y", "y", order="fair")

    assert [table.take(full_for("x")).trigger.id for _ in range(2)] == [4, 5]
    table.freed()

    assert taken(table) == [1, 6, 2, 3], "next in turn, and no turns to catch up"


@pytest.mark.req("ALL-2")
def test_priority_then_kinds_in_turn_then_pass_then_first_come_first_served():
    table = TriggerTable(rng=Random(0))
    lines = [("x", 5, (1, 1)), ("x", 5, (9, 2)), ("x", 5, (1, 3)), ("y", 5, (7, 4))]
    lines += [("full", 5, (5, 5)), ("full", 5, (2, 6)), ("full", 5, (5, 7)), ("y", 9, (1, 8))]
    lines += [("x", 5, (1, 9)), ("y", 0, (9, 10))]
    for id, (kind, priority, level) in enumerate(lines, start=1):
        add(table, id, kind, priority=priority, level=Level(*level))

    assert taken(table, full_for("full")) == [10, 1, 4, 3, 9, 2, 8]
    table.freed()

    assert taken(table) == [6, 5, 7], "the skipped kind kept the order of its keys"


@pytest.mark.req("ALL-3")
def test_a_full_kind_does_not_block_other_kinds_of_the_same_fairness_key():
    table = a_table("full", "mail", "full", "push", fairness_key="a")

    assert taken(table, full_for("full")) == [2, 4]
    assert len(table) == 2
