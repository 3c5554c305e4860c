"""Many kinds and priorities behind one queue: what is full waits, what is free starts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

import pytest

from conditions import until
from holdfast import Holdfast
from holdfast.dispatch.limits import Limits
from holdfast.dispatch.slots import FixedSlots, PerKind
from holdfast.node.node import Node
from holdfast.testing.apps import fresh, opened


class Shop:
    """Kinds that note their starts and hold on until the gate is opened."""

    def __init__(self, app: Holdfast, *kinds: str) -> None:
        self.started: list[tuple[str, int]] = []
        self.gate = asyncio.Event()
        self.tasks = {kind: self._kind(app, kind) for kind in kinds}

    def _kind(self, app: Holdfast, kind: str):
        @app.task(name=kind)
        async def handler(number: int) -> None:
            self.started.append((kind, number))
            await self.gate.wait()

        return handler

    async def enqueue(self, kind: str, numbers: range, **options) -> None:
        for first in range(numbers.start, numbers.stop, 1_000):
            part = range(first, min(first + 1_000, numbers.stop))
            await self.tasks[kind].options(**options).enqueue_many([(n,) for n in part])

    def of(self, kind: str) -> list[int]:
        return [number for one, number in self.started if one == kind]


async def most_until(node: Node, is_over: Callable[[], bool]) -> int:
    """The most triggers in memory at any turn of the loop until then."""
    most = 0
    async with asyncio.timeout(10):
        while not is_over():
            most = max(most, node.looked_ahead)
            await asyncio.sleep(0)
    return most


@pytest.mark.req("TASK-33")
async def test_ten_thousand_tasks_of_a_full_kind_do_not_delay_ten_of_a_free_one(store_url):
    app = fresh(store_url)
    shop = Shop(app, "full", "free")
    booking = PerKind({"full": FixedSlots(1)})
    async with (
        opened(app),
        app.node(drain_s=0.1, booking=booking, limits=Limits(look_ahead=10_000)) as node,
    ):
        await shop.enqueue("full", range(10_000))
        await until(lambda: node.looked_ahead >= 1_000, timeout_s=20)
        loop = asyncio.get_running_loop()
        asked_at = loop.time()

        await shop.enqueue("free", range(10))
        await until(lambda: len(shop.of("free")) == 10)

        assert loop.time() - asked_at < 1.0
        assert len(shop.of("full")) == 1 and node.looked_ahead <= 10_000


async def test_a_full_kind_never_fills_the_whole_look_ahead(store_url):
    """However long its backlog is, there is room to see the tasks of other kinds."""
    app = fresh(store_url)
    shop = Shop(app, "full", "free")
    booking = PerKind({"full": FixedSlots(1)})
    limits = Limits(look_ahead=200, window=100, reload_at=10)
    async with opened(app), app.node(drain_s=0.1, booking=booking, limits=limits) as node:
        await shop.enqueue("full", range(1_000))
        await until(lambda: len(shop.of("full")) == 1)

        await shop.enqueue("free", range(10))
        await until(lambda: len(shop.of("free")) == 10, timeout_s=10)

        assert node.looked_ahead <= 200


@pytest.mark.req("TASK-29", "TASK-30")
async def test_one_channel_serves_many_kinds_and_priorities_within_the_look_ahead_limit(store_url):
    """Forty kinds in ten priorities come by one queue, shuffled; memory stays at its bound."""
    app = fresh(store_url)
    kinds = [f"kind {number}" for number in range(40)]
    shop = Shop(app, *kinds)
    shop.gate.set()
    rng, most = Random(3), 0
    limits = Limits(look_ahead=100, window=20, reload_at=5, page=64)
    async with opened(app), app.node(drain_s=0.1, slots_async=8, limits=limits) as node:
        for number in range(800):
            options = shop.tasks[rng.choice(kinds)].options(priority=rng.randrange(10))
            await options.enqueue(number)
            most = max(most, node.looked_ahead)
        most = max(most, await most_until(node, lambda: len(shop.started) == 800))
        await node.drained(10)

    assert most <= 100
    assert sorted(number for _, number in shop.started) == list(range(800))
    assert len({kind for kind, _ in shop.started}) == 40


@pytest.mark.req("TASK-30")
async def test_a_burst_beyond_the_look_ahead_limit_stays_in_the_store(store_url):
    app = fresh(store_url)
    shop = Shop(app, "held")
    limits = Limits(look_ahead=100, window=20, reload_at=5, page=64)
    async with opened(app), app.node(drain_s=0.1, slots_async=2, limits=limits) as node:
        most = 0
        for first in range(0, 600, 200):
            await shop.enqueue("held", range(first, first + 200))
            most = max(most, node.looked_ahead)
        await until(lambda: node.looked_ahead >= 20)
        shop.gate.set()
        most = max(most, await most_until(node, lambda: len(shop.started) == 600))
        await node.drained(20)

    assert most <= 100
    assert sorted(shop.of("held")) == list(range(600))


@pytest.mark.req("TASK-32")
async def test_within_the_look_ahead_the_task_of_a_higher_priority_that_came_last_starts_first(
    store_url,
):
    app = fresh(store_url)
    shop = Shop(app, "one", "other")
    async with opened(app), app.node(drain_s=0.1, slots_async=1) as node:
        await shop.enqueue("one", range(1), priority=5)
        await until(lambda: len(shop.started) == 1)
        await shop.enqueue("one", range(1, 51), priority=5)
        await shop.enqueue("other", range(51, 101), priority=6)
        await until(lambda: node.looked_ahead == 100)

        await shop.enqueue("other", range(101, 102), priority=4)
        await shop.enqueue("one", range(102, 103), priority=0)
        await until(lambda: node.looked_ahead == 102)
        shop.gate.set()
        await node.drained(10)

    numbers = [number for _, number in shop.started]
    assert numbers[:3] == [0, 102, 101]
    assert numbers[3:] == list(range(1, 101))


@pytest.mark.req("TASK-43", "TASK-49")
async def test_a_full_kind_at_a_high_priority_does_not_stop_a_free_one_at_a_low_priority(store_url):
    app = fresh(store_url)
    shop = Shop(app, "full", "free")
    booking = PerKind({"full": FixedSlots(2)})
    async with opened(app), app.node(drain_s=0.1, booking=booking) as node:
        await shop.enqueue("full", range(50), priority=0)
        await until(lambda: len(shop.of("full")) == 2 and node.looked_ahead == 48)

        await shop.enqueue("free", range(20), priority=9)
        await until(lambda: len(shop.of("free")) == 20)

        assert len(shop.of("full")) == 2
        assert node.looked_ahead == 48


@pytest.mark.req("ALL-3")
async def test_a_task_skipped_for_its_full_kind_does_not_block_its_key_in_other_kinds(store_url):
    app = fresh(store_url)
    shop = Shop(app, "full", "free")
    booking = PerKind({"full": FixedSlots(1)})
    async with opened(app), app.node(drain_s=0.1, booking=booking) as node:
        await shop.enqueue("full", range(30), fairness_key="tenant", priority=0)
        await until(lambda: len(shop.of("full")) == 1 and node.looked_ahead == 29)

        for number in range(10):
            await shop.enqueue("free", range(number, number + 1), fairness_key="tenant")
        await until(lambda: len(shop.of("free")) == 10)

        assert sorted(shop.of("free")) == list(range(10))
        assert len(shop.of("full")) == 1
