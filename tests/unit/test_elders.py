"""Who is the eldest of an ordering key: in the table, whatever column a task stands in."""

from __future__ import annotations

from random import Random

from holdfast.dispatch.elders import Elders
from holdfast.dispatch.table import TriggerTable
from holdfast.store import Level
from holdfast.task import TaskId
from holdfast.testing.build import a_trigger


def test_the_eldest_is_the_lowest_id_in_whatever_order_they_came():
    elders = Elders()
    for id in (5, 3, 9):
        elders.add("key", TaskId(id))
    elders.add("other", TaskId(1))

    assert elders.first("key") == 3
    assert elders.first("other") == 1
    assert elders.first("nobody") is None


def test_when_the_eldest_leaves_the_next_one_is_the_eldest():
    elders = Elders()
    for id in (5, 3, 9, 4):
        elders.add("key", TaskId(id))

    for gone, eldest in ((3, 4), (5, 4), (4, 9), (9, None)):
        elders.leave("key", TaskId(gone))
        assert elders.first("key") == eldest


def test_a_task_that_comes_twice_is_gone_when_it_leaves():
    elders = Elders()
    elders.add("key", TaskId(3))
    elders.add("key", TaskId(3))
    elders.add("key", TaskId(7))

    elders.leave("key", TaskId(3))

    assert elders.first("key") == 7


def test_a_task_that_left_and_came_back_is_the_eldest_again():
    elders = Elders()
    elders.add("key", TaskId(3))
    elders.add("key", TaskId(7))
    elders.leave("key", TaskId(3))
    assert elders.first("key") == 7

    elders.add("key", TaskId(3))

    assert elders.first("key") == 3


def test_a_key_waits_for_an_elder_until_one_comes_in():
    elders = Elders()
    elders.add("key", TaskId(7))
    elders.await_elder("key", TaskId(7))
    elders.add("key", TaskId(9))
    elders.add("other", TaskId(1))
    assert (elders.awaited, elders.came()) == ({"key": 7}, [])

    elders.add("key", TaskId(6))

    assert (elders.awaited, elders.came()) == ({}, ["key"])
    assert elders.came() == []


def test_a_key_does_not_wait_for_an_elder_that_is_here():
    elders = Elders()
    elders.add("key", TaskId(3))

    elders.await_elder("key", TaskId(7))

    assert (elders.awaited, elders.came()) == ({}, [])


def test_the_table_names_the_eldest_of_a_key_whatever_its_kind_priority_and_level():
    table = TriggerTable(rng=Random(0))
    for id, kind, priority, pass_ in ((8, "mail", 0, 1), (6, "print", 9, 7), (7, "mail", 5, 2)):
        trigger = a_trigger(id, kind, priority=priority, ordering_key="invoice")
        table.add(trigger, Level(pass_, id))

    eldest = table.eldest("invoice")
    assert eldest is not None and eldest.id == 6
    table.remove(TaskId(6))
    assert [table.take(lambda trigger: None).trigger.id for _ in range(1)] == [8]
    assert table.eldest("invoice").id == 7
    table.take(lambda trigger: None)
    assert table.eldest("invoice") is None
