"""The gate of a queue: what it counts, whatever becomes of a trigger."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import count

import pytest

from holdfast.clock import SystemClock
from holdfast.dispatch.gate import ASK_S, REFRESH_S, Gate
from holdfast.errors import ConfigurationError, StoreUnavailable
from holdfast.ids import NodeId
from holdfast.limit import Limit, Share, Want, limit_of
from holdfast.task import Trigger
from holdfast.telemetry.events import Events
from holdfast.testing.build import a_trigger
from holdfast.testing.model import ModelStore
from holdfast.testing.simulate import World, simulate


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


# ── asking the store for shares, in virtual time ──────────────────────────────────────────────

SIZE = 6


class Asked(ModelStore):
    """Counts how often each node asks."""

    def __init__(self, world: World) -> None:
        super().__init__(clock=world)
        self.asks: Counter[str] = Counter()

    def _is_alive(self, node: NodeId) -> bool:
        return True  # these nodes have no leases

    async def allot(self, queue: str, wants: Sequence[Want], *, node: NodeId) -> list[Share]:
        self.asks[node] += 1
        await asyncio.sleep(0.001)
        return await super().allot(queue, wants, node=node)


class Busy:
    """A node that never runs out of tasks, each of which runs for so long."""

    def __init__(self, world: World, store: Asked, name: str, *, run_s: float) -> None:
        self.running: dict[int, Trigger] = {}
        self.most = 0
        self._is_resting = False
        self._ids = count(1)
        self._run_s = run_s
        self._world = world
        self._store = store
        self._name = name
        self.gate = Gate(
            "q",
            node=NodeId(name),
            store=store,
            clock=world,
            events=Events(),
            running=lambda: list(self.running.values()),
            switched=lambda mode: None,
            opened=self._start,
        )

    async def __aenter__(self) -> Busy:
        await self.gate.open()
        self._keeping = asyncio.create_task(self.gate.keep())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._keeping.cancel()
        await asyncio.gather(self._keeping, return_exceptions=True)

    @property
    def asks(self) -> int:
        return self._store.asks[self._name]

    def rests(self) -> None:
        """Start nothing more."""
        self._is_resting = True

    def _start(self, keys: Iterable[str | None] | None = None) -> None:
        while (
            not self._is_resting and self.gate.book(trigger := a_trigger(next(self._ids))) is None
        ):
            self.running[trigger.id] = trigger
            self.most = max(self.most, len(self.running))
            self._world.call_later(self._run_s, self._end, trigger)

    def _end(self, trigger: Trigger) -> None:
        if self._keeping.done():
            return
        del self.running[trigger.id]
        self.gate.free(trigger)
        self._start()


async def a_limited_store(world: World) -> Asked:
    store = Asked(world)
    await store.change_rules("q", limits=[Limit(name="six", queue="q", concurrency=SIZE)])
    return store


@pytest.mark.parametrize("run_s", [0.1, 60.0])
def test_a_node_that_uses_a_whole_limit_asks_for_it_about_once_a_second(run_s):
    async def main(world: World) -> None:
        store = await a_limited_store(world)
        async with Busy(world, store, "one", run_s=run_s) as one:
            await asyncio.sleep(1.0)
            before = one.asks
            assert len(one.running) == SIZE

            await asyncio.sleep(10.0)

            assert 8 / REFRESH_S <= one.asks - before <= 12 / REFRESH_S
            assert len(one.running) == one.most == SIZE

    simulate(main)


@pytest.mark.parametrize("run_s", [0.05, 0.5])
@pytest.mark.parametrize("alone_s", [0.0, 3.0, 3.1, 3.5])
def test_two_nodes_that_compete_have_their_shares_within_a_second_and_a_task(alone_s, run_s):
    async def main(world: World) -> None:
        store = await a_limited_store(world)
        async with Busy(world, store, "one", run_s=run_s) as one:
            await asyncio.sleep(alone_s)
            async with Busy(world, store, "two", run_s=run_s) as two:
                shared_s = await _until_shared(world, one, two)
                assert shared_s <= REFRESH_S + ASK_S + run_s
                for _ in range(2_000):
                    await asyncio.sleep(0.001)
                    assert len(one.running) + len(two.running) <= SIZE
                assert len(one.running) == len(two.running) == SIZE // 2

    simulate(main)


async def _until_shared(world: World, one: Busy, two: Busy) -> float:
    began_s = world.seconds()
    async with asyncio.timeout(5):
        while not len(one.running) == len(two.running) == SIZE // 2:
            assert len(one.running) + len(two.running) <= SIZE
            await asyncio.sleep(0.001)
    return world.seconds() - began_s


def test_a_node_that_waits_gets_the_whole_limit_when_the_other_one_leaves():
    async def main(world: World) -> None:
        store = await a_limited_store(world)
        async with Busy(world, store, "one", run_s=0.05) as one:
            async with Busy(world, store, "two", run_s=0.05) as two:
                await _until_shared(world, one, two)
            await two.gate.close()
            left_s = world.seconds()
            async with asyncio.timeout(5):
                while len(one.running) < SIZE:
                    await asyncio.sleep(0.001)
            assert world.seconds() - left_s <= 0.2

    simulate(main)


def test_a_stored_limit_is_read_whatever_this_version_thinks_of_it():
    limit = limit_of(["old", "mail", 2.5, None, None, "", 1.0, 0])

    assert (limit.name, limit.concurrency, limit.key, limit.local) == ("old", 2.5, "", False)
    with pytest.raises(ConfigurationError):
        replace(limit)


class Failing(ModelStore):
    """A store whose next answers about shares are lost, or never arrive."""

    def __init__(self, world: World, *, is_done: bool) -> None:
        super().__init__(clock=world)
        self.is_down = False
        self._is_done = is_done

    async def allot(self, queue: str, wants: Sequence[Want], *, node: NodeId) -> list[Share]:
        await asyncio.sleep(0.001)
        if self.is_down and not self._is_done:
            raise StoreUnavailable("never arrived")
        shares = await super().allot(queue, wants, node=node)
        if self.is_down:
            raise StoreUnavailable("the answer was lost")
        return shares


@pytest.mark.parametrize("is_done", [False, True])
def test_a_share_is_given_back_though_the_store_failed_when_it_was_asked(is_done):
    async def main(world: World) -> tuple[list[int], bool]:
        store = Failing(world, is_done=is_done)
        await store.change_rules("q", limits=[Limit(name="four", queue="q", concurrency=4)])
        held: list[int] = []
        async with Busy(world, store, "first", run_s=0.1) as first:
            gate = first.gate
            await asyncio.sleep(1.0)
            held.append(sum(h.held for r in store._shares.values() for _, h in r.values()))
            first.rests()
            store.is_down = True
            await asyncio.sleep(REFRESH_S + 1.0)
            store.is_down = False
            await asyncio.sleep(3 * REFRESH_S + 3.0)
            held.append(sum(h.held for r in store._shares.values() for _, h in r.values()))
            await gate.close()
        return held, any(store._shares.values())

    held, is_left = simulate(main)

    assert held[0] > 0 and held[1] == 0
    assert not is_left
