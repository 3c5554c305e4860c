"""The gate of a queue: what it counts, whatever becomes of a trigger."""

from __future__ import annotations

from holdfast.clock import SystemClock
from holdfast.dispatch.gate import Gate
from holdfast.ids import NodeId
from holdfast.limit import Limit
from holdfast.telemetry.events import Events
from holdfast.testing.build import a_trigger
from holdfast.testing.model import ModelStore


async def a_gate(*limits: Limit) -> Gate:
    clock = SystemClock()
    store = ModelStore(clock=clock)
    await store.change_rules("q", limits=limits)
    gate = Gate(
        "q",
        node=NodeId("node"),
        store=store,
        clock=clock,
        events=Events(),
        running=list,
        switched=lambda mode: None,
        opened=lambda keys: None,
    )
    await gate.open()
    return gate


async def test_a_task_that_is_resumed_while_it_runs_here_is_counted_apart():
    gate = await a_gate(Limit(name="two", queue="q", concurrency=2, local=True))
    running, resumed = a_trigger(1, version=1), a_trigger(1, version=3)
    assert gate.book(running) is None and gate.book(resumed) is None
    assert gate.book(a_trigger(2)) is not None

    gate.free(resumed, is_lost=True)
    gate.free(running)

    assert [gate.book(a_trigger(id)) is None for id in (3, 4, 5)] == [True, True, False]


async def test_a_lost_grab_gives_its_token_back():
    gate = await a_gate(Limit(name="slow", queue="q", rate=0.001, burst=1.0, local=True))
    first = a_trigger(1)
    assert gate.book(first) is None and gate.book(a_trigger(2)) is not None

    gate.free(first, is_lost=True)

    assert gate.book(a_trigger(3)) is None


async def test_keys_that_came_once_do_not_fill_memory():
    gate = await a_gate(
        Limit(name="each", queue="q", rate=1_000.0, key="*", burst=0.01, local=True)
    )
    for id in range(5_000):
        trigger = a_trigger(id, fairness_key=f"key {id}")
        assert gate.book(trigger) is None
        gate.free(trigger)

    gate._forget_idle(SystemClock().seconds() + 10.0)

    assert len(gate._held) == 0
