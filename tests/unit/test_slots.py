"""Booking policies that count slots on this node."""

from collections import Counter
from copy import deepcopy
from itertools import cycle
from random import Random

import pytest

from holdfast.booking import Full
from holdfast.dispatch.slots import AllOf, FixedSlots, PerKey, PerKind
from holdfast.dispatch.table import TriggerTable
from holdfast.store import Level
from holdfast.testing.build import START, a_trigger
from holdfast.testing.contracts.booking import BookingContract


def counted(held, kind=None, key=None):
    return sum(
        (kind is None or trigger.kind == kind) and (key is None or trigger.fairness_key == key)
        for trigger in held
    )


class TestFixedSlots(BookingContract):
    def a_policy(self):
        return FixedSlots(3)

    def allows(self, held):
        return len(held) <= 3


class TestPerKey(BookingContract):
    def a_policy(self):
        return PerKey(2)

    def allows(self, held):
        return all(counted(held, key=key) <= 2 for key in ("a", "b"))

    def trigger(self, id):
        return a_trigger(id, fairness_key="a")


class TestPerKind(BookingContract):
    def a_policy(self):
        return PerKind({"mail": FixedSlots(2)})

    def allows(self, held):
        return counted(held, "mail") <= 2


class TestPerKindWithADefault(BookingContract):
    def a_policy(self):
        return PerKind({"payout": FixedSlots(1)}, default=FixedSlots(2))

    def allows(self, held):
        return counted(held, "payout") <= 1 and counted(held, "mail") <= 2


class TestNestedPolicies(BookingContract):
    def a_policy(self):
        return AllOf(FixedSlots(6), PerKind({"payout": AllOf(FixedSlots(4), PerKey(2))}))

    def allows(self, held):
        partners = all(counted(held, "payout", key) <= 2 for key in ("a", "b"))
        return len(held) <= 6 and counted(held, "payout") <= 4 and partners


@pytest.mark.req("TASK-53")
def test_under_load_never_more_than_the_limit_run_at_once_and_the_limit_is_reached():
    policy, table, running, most = FixedSlots(7), TriggerTable(rng=Random(0)), [], 0
    for id in range(500):
        table.add(a_trigger(id), Level(1, id))

    for turn in cycle(range(3)):
        while item := table.take(lambda trigger: policy.book(trigger, now=START)):
            running.append(item.trigger)
            most = max(most, len(running))
        if not running:
            break
        for _ in range(min(turn + 1, len(running))):
            policy.free(running.pop(0))
        table.freed()

    assert most == 7 and len(table) == 0 and policy.taken == 0


def nested():
    total, payouts, partners = FixedSlots(30), FixedSlots(15), PerKey(3)
    policy = AllOf(total, PerKind({"payout": AllOf(payouts, partners)}))
    return policy, total, payouts, partners


def booked(policy, triggers):
    return [trigger for trigger in triggers if policy.book(trigger, now=START) is None]


@pytest.mark.req("TASK-55")
def test_a_nested_policy_keeps_all_three_limits_and_each_can_be_reached():
    policy, total, payouts, _ = nested()
    wanted = [a_trigger(id, "payout", fairness_key=f"p{id % 9}") for id in range(90)]
    wanted += [a_trigger(id, "mail") for id in range(90, 190)]

    held = booked(policy, wanted)

    assert Counter(trigger.kind for trigger in held) == {"payout": 15, "mail": 15}
    by_partner = Counter(trigger.fairness_key for trigger in held if trigger.kind == "payout")
    assert max(by_partner.values()) == 2, "nine partners share fifteen"
    assert (total.taken, payouts.taken, policy.taken) == (30, 15, 30)


@pytest.mark.req("TASK-55")
def test_one_partner_reaches_its_three_and_not_a_fourth():
    policy, total, payouts, partners = nested()

    held = booked(policy, [a_trigger(id, "payout", fairness_key="p") for id in range(9)])

    assert len(held) == 3 and partners.taken_by("p") == 3
    assert (total.taken, payouts.taken) == (3, 3)
    assert policy.book(a_trigger(10, "payout", fairness_key="q"), now=START) is None


@pytest.mark.req("TASK-56")
def test_when_an_inner_level_is_full_the_outer_ones_are_given_back():
    policy, total, payouts, partners = nested()
    booked(policy, [a_trigger(id, "payout", fairness_key="p") for id in range(3)])

    for id in range(100):
        refused = policy.book(a_trigger(id, "payout", fairness_key="p"), now=START)
        assert refused == Full(key_only=True)

    assert (total.taken, payouts.taken, partners.taken) == (3, 3, 3)


def test_a_policy_that_raises_leaks_no_slot_of_the_others():
    class Broken:
        def book(self, trigger, *, now):
            raise RuntimeError("no such partner")

    outer = FixedSlots(1)
    with pytest.raises(RuntimeError):
        AllOf(outer, Broken()).book(a_trigger(), now=START)

    assert outer.taken == 0


@pytest.mark.req("TASK-57")
@pytest.mark.parametrize(
    ("make", "of"),
    [(FixedSlots, 1), (PerKey, 1), (PerKind, {}), (AllOf, FixedSlots(1))],
    ids=["FixedSlots", "PerKey", "PerKind", "AllOf"],
)
def test_freeing_below_zero_is_reported_and_changes_nothing(make, of):
    policy, trigger = make(deepcopy(of)), a_trigger(fairness_key="a")

    with pytest.raises(AssertionError, match="not booked"):
        policy.free(trigger)

    assert policy.taken == 0
    assert policy.book(trigger, now=START) is None and policy.taken == 1


@pytest.mark.req("TASK-57")
def test_a_key_or_a_kind_cannot_free_the_slot_of_another():
    for policy in (PerKey(2), PerKind({"mail": FixedSlots(2)})):
        policy.book(a_trigger(1, "mail", fairness_key="a"), now=START)

        with pytest.raises(AssertionError, match="not booked"):
            policy.free(a_trigger(2, "payout", fairness_key="b"))

        assert policy.taken == 1


def test_a_limit_per_key_counts_by_the_key_that_it_is_given():
    policy = PerKey(1, key=lambda trigger: trigger.ordering_key)

    assert policy.book(a_trigger(1, fairness_key="a", ordering_key="o"), now=START) is None
    assert policy.book(a_trigger(2, fairness_key="a", ordering_key="p"), now=START) is None
    assert policy.book(a_trigger(3, fairness_key="b", ordering_key="o"), now=START) is not None


def test_a_limit_can_be_changed_while_slots_are_taken():
    policy = FixedSlots(2)
    held = booked(policy, [a_trigger(1), a_trigger(2)])

    policy.slots_max = 1
    policy.free(held[0])
    assert policy.book(a_trigger(3), now=START) == Full()
    policy.slots_max = 3

    assert len(booked(policy, [a_trigger(id) for id in range(9)])) == 2


def test_a_policy_named_twice_is_refused():
    slots = FixedSlots(1)

    with pytest.raises(AssertionError, match="twice"):
        AllOf(slots, slots)


def test_every_kind_and_key_tells_how_many_slots_it_holds():
    per_kind, per_key = PerKind({"payout": FixedSlots(9)}), PerKey(9)
    for id in (1, 2):
        per_kind.book(a_trigger(id, "payout"), now=START)
        per_key.book(a_trigger(id, fairness_key="a"), now=START)

    assert (per_kind.taken_by("payout"), per_kind.taken_by("mail")) == (2, 0)
    assert (per_key.taken_by("a"), per_key.taken_by("b")) == (2, 0)
    per_kind.free(a_trigger(1, "payout"))
    per_key.free(a_trigger(1, fairness_key="a"))
    assert (per_kind.taken_by("payout"), per_key.taken_by("a")) == (1, 1)
    per_kind.free(a_trigger(2, "payout"))
    per_key.free(a_trigger(2, fairness_key="a"))
    assert (per_kind.taken_by("payout"), per_key.taken_by("a")) == (0, 0)


class Talkative(FixedSlots):
    """A policy that can say why it refuses."""

    def explain(self, trigger):
        return f"{trigger.kind}: {self.taken} of {self.slots_max}" if self.slots_max else ""


def test_a_nested_policy_says_what_those_in_it_can_say():
    policy = AllOf(FixedSlots(9), Talkative(0), PerKind({"payout": Talkative(3)}), Talkative(5))

    assert policy.explain(a_trigger(1, "payout")) == "payout: 0 of 3; payout: 0 of 5"
    assert policy.explain(a_trigger(1, "mail")) == "mail: 0 of 5"
    assert PerKind({}, default=Talkative(2)).explain(a_trigger(1, "mail")) == "mail: 0 of 2"
    assert PerKind({"mail": FixedSlots(1)}).explain(a_trigger(1, "mail")) == ""
