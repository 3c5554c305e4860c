"""Triggers are hints: lost, doubled, late or wrong ones cost time, never a task or an attempt."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from conditions import until
from holdfast import Holdfast, Retry
from holdfast.bus import Bus
from holdfast.dispatch.limits import Limits
from holdfast.task import Trigger
from holdfast.testing.apps import fresh, opened
from holdfast.testing.faults import FaultyBus


class Deaf(FaultyBus):
    """A bus on which nobody hears anything, not even a doorbell."""

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus, rng=Random(0), lose=1.0)

    async def subscribe(self, queues, hear) -> None:
        pass


def counting(app: Holdfast, **options):
    ran: list[int] = []

    @app.task(name="count", **options)
    async def handler(number: int) -> None:
        ran.append(number)

    return handler, ran


@pytest.mark.req("TASK-7", "TASK-22")
async def test_a_task_whose_trigger_was_lost_starts_within_the_idle_wait(store_url):
    app = fresh(store_url, wrap_bus=Deaf)
    task, ran = counting(app)
    async with opened(app), app.node() as node:
        await until(lambda: node.is_idle)
        loop = asyncio.get_running_loop()
        started = loop.time()

        await task.enqueue(1)  # committed, and the process "died" before the trigger left
        await until(lambda: ran == [1])

        assert loop.time() - started <= 5.0 + 0.5
        await node.drained(10)


@pytest.mark.req("TASK-21")
async def test_doubled_and_reordered_triggers_never_cause_a_second_attempt(store_url):
    app = fresh(
        store_url,
        wrap_bus=lambda bus: FaultyBus(bus, rng=Random(2), double=1.0, late=0.3),
    )
    task, ran = counting(app)
    async with opened(app), app.node() as node:
        await asyncio.gather(*(task.enqueue(number) for number in range(200)))
        await until(lambda: len(ran) >= 200)
        await node.drained(10)

        assert sorted(ran) == list(range(200))


@pytest.mark.req("TASK-26", "TASK-28")
async def test_a_trigger_for_an_old_version_or_a_deleted_task_is_dropped(store_url):
    buses: list[Bus] = []

    def keep(bus: Bus) -> Bus:
        buses.append(bus)
        return bus

    app = fresh(store_url, wrap_bus=keep)
    attempts: list[int] = []

    @app.task(retry=Retry(attempts=2, delay=0.05))
    async def flaky() -> None:
        attempts.append(len(attempts) + 1)
        if len(attempts) == 1:
            raise ValueError("once")

    async with opened(app), app.node() as node:
        handle = await flaky.enqueue()
        await until(lambda: len(attempts) == 1)
        before = await handle.task()
        old = Trigger(handle.id, 1, "default", before.partition, "flaky", 5)

        buses[0].publish([old, old._replace(id=10**12)])
        await until(lambda: len(attempts) == 2)
        await node.drained(10)
        buses[0].publish([old, old._replace(version=99)])
        await until(lambda: node.is_idle)

        assert attempts == [1, 2]
        assert (await handle.state()).name == "DONE"


@pytest.mark.req("TASK-91")
async def test_a_retried_task_whose_trigger_was_lost_is_found_like_a_new_one(store_url):
    app = fresh(store_url, wrap_bus=Deaf)
    attempts: list[int] = []

    @app.task(retry=Retry(attempts=3, delay=0))
    async def flaky() -> None:
        attempts.append(len(attempts) + 1)
        if len(attempts) < 3:
            raise ValueError("not yet")

    limits = Limits(idle_wait_s=0.3)
    async with opened(app), app.node(limits=limits) as node:
        handle = await flaky.enqueue()
        await until(lambda: len(attempts) == 3)
        await node.drained(10)

        assert (await handle.state()).name == "DONE"
        task = await handle.task()
        assert (task.attempts, task.deliveries) == (2, 3)


@pytest.mark.req("TASK-31")
async def test_at_the_look_ahead_limit_fetching_stops_and_nothing_is_lost(store_url):
    app = fresh(store_url)
    gate = asyncio.Event()
    ran: list[int] = []

    @app.task
    async def held(number: int) -> None:
        await gate.wait()
        ran.append(number)

    limits = Limits(look_ahead=50, window=20, reload_at=5, page=40)
    async with opened(app), app.node(slots_async=3, limits=limits, lease_s=2.0) as node:
        await held.enqueue_many([(number,) for number in range(400)])
        most = 0
        for _ in range(300):  # longer than the lease
            most = max(most, node.looked_ahead)
            await asyncio.sleep(0.01)
        gate.set()
        await node.drained(20)

        assert most <= 50
        assert sorted(ran) == list(range(400))
