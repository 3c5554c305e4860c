"""The trigger table where keys are charged by the run time of their handlers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from random import Random

from holdfast.booking import Full
from holdfast.dispatch.lanes import LANES_MAX
from holdfast.dispatch.table import TriggerTable
from holdfast.store import Level
from holdfast.testing.build import a_trigger


def a_table(many: Mapping[str, int], weights: Mapping[str, float] | None = None) -> TriggerTable:
    """A table that charges by cost, with so many triggers of each key, in turn."""
    table = TriggerTable(rng=Random(0))
    table.switch("cost")
    passes = table.passes(5, "mail")
    id = 0
    for number in range(max(many.values())):
        for key in (key for key in many if number < many[key]):
            id += 1
            weight = (weights or {}).get(key, 1.0)
            trigger = a_trigger(id, fairness_key=key, weight=weight)
            table.add(trigger, Level(passes.next(key, weight), id))
    return table


def used(table: TriggerTable, costs_s: Mapping[str, float | None], turns: int) -> Counter[str]:
    """How often each key was served, one task at a time."""
    served: Counter[str] = Counter()
    for _ in range(turns):
        item = table.take(lambda trigger: None)
        assert item is not None
        served[item.trigger.fairness_key] += 1
        table.charge(item.trigger, costs_s[item.trigger.fairness_key])
    return served


def test_two_keys_that_both_wait_use_the_same_time():
    served = used(a_table({"slow": 200, "fast": 200}), {"slow": 10.0, "fast": 1.0}, turns=165)

    assert abs(served["slow"] * 10 - served["fast"]) <= 20, served


def test_a_key_of_twice_the_weight_uses_twice_the_time():
    table = a_table({"heavy": 300, "light": 300}, {"heavy": 2.0, "light": 1.0})

    served = used(table, {"heavy": 0.5, "light": 0.5}, turns=300)

    assert abs(served["heavy"] - 2 * served["light"]) <= 3, served


def test_what_never_ran_costs_its_key_nothing():
    table = a_table({"unlucky": 300, "other": 300})
    used(table, {"unlucky": 1.0, "other": 1.0}, turns=40)

    served = used(table, {"unlucky": None, "other": 1.0}, turns=100)

    assert served["unlucky"] > 80, served


def test_with_equal_costs_keys_take_turns_and_each_keeps_its_order():
    table = a_table({"a": 50, "b": 50, "c": 50})
    ids: dict[str, list[int]] = {"a": [], "b": [], "c": []}
    for _ in range(120):
        item = table.take(lambda trigger: None)
        assert item is not None
        ids[item.trigger.fairness_key].append(item.trigger.id)
        table.charge(item.trigger, 0.2)

    assert [len(found) for found in ids.values()] == [40, 40, 40]
    assert all(found == sorted(found) for found in ids.values())


def test_a_key_that_comes_back_after_a_rest_has_no_credit():
    table = a_table({"busy": 400})
    used(table, {"busy": 1.0}, turns=100)
    for id in range(1_001, 1_051):
        table.add(a_trigger(id, fairness_key="back"), Level(table.passes(5, "mail").top, id))

    served = used(table, {"busy": 1.0, "back": 1.0}, turns=40)

    assert abs(served["busy"] - served["back"]) <= 2, served


def test_a_key_that_used_up_its_lane_pays_for_its_last_tasks_when_it_comes_back():
    table = a_table({"dear": 3, "cheap": 400})
    used(table, {"dear": 50.0, "cheap": 1.0}, turns=20)
    for id in range(1_001, 1_011):
        table.add(a_trigger(id, fairness_key="dear"), Level(table.passes(5, "mail").top, id))

    assert used(table, {"dear": 50.0, "cheap": 1.0}, turns=30)["dear"] <= 2


def test_tasks_that_run_at_the_same_time_are_charged_by_what_such_tasks_cost_before():
    table = a_table({"slow": 200, "fast": 200})
    used(table, {"slow": 10.0, "fast": 1.0}, turns=60)

    at_once = [table.take(lambda trigger: None) for _ in range(44)]

    served = Counter(item.trigger.fairness_key for item in at_once if item is not None)
    assert served["fast"] >= 6 * served["slow"] > 0, served


def test_more_keys_than_there_are_lanes_are_all_served():
    keys = [f"k{number}" for number in range(LANES_MAX + 20)]
    table = a_table(dict.fromkeys(keys, 2))

    served = used(table, dict.fromkeys(keys, 0.1), turns=2 * len(keys))

    assert set(served.values()) == {2} and len(table) == 0
    assert table.take(lambda trigger: None) is None


def test_without_cost_fairness_run_times_change_nothing():
    table = a_table({"slow": 20, "fast": 20})
    table.switch("count")
    assert not table.charges_by_cost

    assert used(table, {"slow": 9.0, "fast": 0.1}, turns=20) == {"slow": 10, "fast": 10}


def test_a_key_that_is_held_back_keeps_its_order_and_is_charged_when_it_goes_on():
    table = a_table({"a": 100, "b": 100})
    for _ in range(20):
        item = table.take(lambda t: Full(key_only=True) if t.fairness_key == "a" else None)
        assert item is not None and item.trigger.fairness_key == "b"
        table.charge(item.trigger, 1.0)
    table.release("a")

    served = used(table, {"a": 1.0, "b": 1.0}, turns=40)

    assert abs(served["a"] - served["b"]) <= 2, served
