"""Every notification may be lost, doubled or late; looking now and then repairs all of them."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from random import Random

import pytest

from conditions import until
from holdfast import Retry, State
from holdfast.booking import Full
from holdfast.bus import Bus, Hear
from holdfast.dispatch.books import Books
from holdfast.dispatch.dispatcher import Dispatcher
from holdfast.dispatch.limits import Limits
from holdfast.duties.duty import Keeper
from holdfast.task import Trigger
from holdfast.testing.apps import fresh, opened
from holdfast.testing.faults import FaultyBus

IDLE_WAIT_S = 0.5
SLACK_S = 0.5
QUICK = Limits(idle_wait_s=IDLE_WAIT_S)

LATE_S = 0.2


class FaultyHints(FaultyBus):
    """Triggers, the waker's hints and doorbells: all of them suffer from the same fault."""

    def __init__(self, bus: Bus, *, fault: str) -> None:
        faults = {"lost": {"lose": 1.0}, "doubled": {"double": 1.0}, "late": {"late": 1.0}}
        super().__init__(bus, rng=Random(9), late_s=LATE_S, **faults[fault])
        self._fault = fault
        self._around: dict[Hear, Hear] = {}

    async def subscribe(self, queues, hear: Hear) -> None:
        self._around[hear] = self._faulty(hear)
        await super().subscribe(queues, self._around[hear])

    async def unsubscribe(self, hear: Hear) -> None:
        if hear in self._around:
            await super().unsubscribe(self._around.pop(hear))

    def _faulty(self, hear: Hear) -> Hear:
        def heard(queue: str, triggers: Sequence[Trigger]) -> Sequence[Trigger]:
            if triggers:
                return hear(queue, triggers)
            if self._fault == "doubled":
                hear(queue, ())
                hear(queue, ())
            elif self._fault == "late":
                asyncio.get_running_loop().call_later(LATE_S, hear, queue, ())
            return ()

        return heard


@pytest.mark.parametrize("fault", ["lost", "doubled", "late"])
@pytest.mark.req("ALL-7")
async def test_no_hint_that_is_lost_doubled_or_late_loses_or_doubles_an_effect(store_url, fault):
    """New tasks, delayed ones, retries with and without delay, and keys in order."""
    app = fresh(store_url, wrap_bus=lambda bus: FaultyHints(bus, fault=fault))
    effects: Counter[str] = Counter()
    starts: Counter[str] = Counter()

    @app.task(retry=Retry(attempts=2, delay=0.1))
    async def act(name: str, failures: int = 0) -> None:
        starts[name] += 1
        if starts[name] <= failures:
            raise ValueError("once more")
        effects[name] += 1

    async with opened(app), app.node(limits=QUICK, tick_s=0.1) as node:
        for number in range(10):
            await act.enqueue(f"plain {number}")
            await act.options(delay=0.3).enqueue(f"delayed {number}")
            await act.enqueue(f"retried {number}", 1)
            await act.options(ordering_key="key").enqueue(f"ordered {number}")
        await until(lambda: len(effects) == 40)
        await node.drained(10)
        counts = await (await app.store()).counts()

    assert set(effects.values()) == {1}
    assert all(starts[name] == (2 if "retried" in name else 1) for name in effects)
    assert counts[State.DONE] == 40


def mute(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> None:
    monkeypatch.setattr(owner, name, lambda *_: None)


WAKE_UPS: dict[str, tuple[type, str]] = {
    "the bus to the dispatcher": (Dispatcher, "hear"),
    "the doorbell to the books": (Books, "ring"),
    "the dispatcher to the books": (Books, "nudge"),
    "anybody to the waker": (Keeper, "wake"),
}


@pytest.mark.parametrize("wake_up", WAKE_UPS)
@pytest.mark.req("ALL-10")
async def test_without_any_one_wake_up_nothing_pends_longer_than_the_idle_wait(
    store_url, monkeypatch, wake_up
):
    """A new task, one that a retry makes pending again, and a delayed one."""
    app = fresh(store_url)
    loop = asyncio.get_running_loop()
    ran: list[tuple[str, float]] = []
    mute(monkeypatch, *WAKE_UPS[wake_up])

    @app.task(retry=Retry(attempts=2, delay=0))
    async def note(name: str) -> None:
        ran.append((name, loop.time()))
        if name == "retried" and len([one for one, _ in ran if one == name]) == 1:
            raise ValueError("once more")

    async with opened(app), app.node(limits=QUICK, tick_s=0.1) as node:
        for name, delay in [("plain", 0.0), ("retried", 0.0), ("delayed", 0.2)]:
            await until(lambda: node.is_idle)
            ran.clear()
            due_at = loop.time() + delay
            await note.options(delay=delay).enqueue(name)
            await until(lambda name=name: len(ran) == (2 if name == "retried" else 1))
            times = [due_at, *(at for _, at in ran)]
            pended = [after - before for before, after in itertools.pairwise(times)]
            assert all(one <= IDLE_WAIT_S + SLACK_S for one in pended), (name, pended)
        await node.drained(10)


class OpensAt:
    """No slot before a moment, and nothing that runs until then will free one."""

    def __init__(self, opens_at: datetime) -> None:
        self._opens_at = opens_at
        self.refused = 0

    def book(self, trigger: Trigger, *, now: datetime) -> Full | None:
        if now >= self._opens_at:
            return None
        self.refused += 1
        return Full(until=self._opens_at)

    def free(self, trigger: Trigger) -> None: ...


async def test_a_kind_that_is_full_until_a_time_is_asked_again_at_that_time(store_url, clock):
    app = fresh(store_url)
    ran: list[datetime] = []

    @app.task
    async def note() -> None:
        ran.append(clock.now())

    opens_at = clock.now() + timedelta(seconds=1)
    policy = OpensAt(opens_at)
    async with opened(app), app.node(limits=QUICK, booking=policy) as node:
        await note.enqueue()
        await until(lambda: len(ran) == 1, timeout_s=4)
        await node.drained(10)

    assert policy.refused >= 1
    assert timedelta(0) <= ran[0] - opens_at <= timedelta(seconds=IDLE_WAIT_S + SLACK_S)
