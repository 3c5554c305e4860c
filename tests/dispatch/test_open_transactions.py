"""A transaction that stays open somewhere on the server delays nobody else's task."""

from __future__ import annotations

import asyncio
from random import Random

import asyncpg
import pytest

from conditions import until
from holdfast.bus import Bus
from holdfast.dispatch.limits import Limits
from holdfast.testing.apps import fresh, opened
from holdfast.testing.faults import FaultyBus


class Deaf(FaultyBus):
    """A bus on which nobody hears anything: only reads of the store find a task."""

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus, rng=Random(0), lose=1.0)

    async def subscribe(self, queues, hear) -> None:
        pass


@pytest.fixture
async def pinned(postgres_url):
    """A writing transaction that pins the horizon of the whole server until the test ends."""
    connection = await asyncpg.connect(postgres_url)
    transaction = connection.transaction()
    await transaction.start()
    await connection.fetchval("SELECT pg_current_xact_id()")
    yield connection
    await transaction.rollback()
    await connection.close()


def counting(url: str):
    app = fresh(url, wrap_bus=Deaf)
    ran: list[int] = []

    @app.task
    async def count(number: int) -> None:
        ran.append(number)

    return app, count, ran


async def test_a_task_that_commits_late_runs_although_an_older_transaction_is_open(
    postgres_url, pinned
):
    app, count, ran = counting(postgres_url)
    async with opened(app), app.node(limits=Limits(idle_wait_s=0.3)) as node:
        late = await asyncpg.connect(postgres_url)
        transaction = late.transaction()
        await transaction.start()
        # One ordering key, so one partition: the read that finds 2 passes the number of 1.
        await count.options(within=late, ordering_key="k").enqueue(1)
        await count.options(ordering_key="k").enqueue(2)
        await until(lambda: ran == [2])

        await transaction.commit()
        await late.close()
        await until(lambda: ran == [2, 1], timeout_s=5)
        await node.drained(5)


async def test_more_tasks_than_memory_holds_run_while_a_transaction_is_open(postgres_url, pinned):
    app, count, ran = counting(postgres_url)
    limits = Limits(look_ahead=50, window=20, reload_at=5, page=320, idle_wait_s=0.3)
    async with opened(app), app.node(slots_async=5, limits=limits) as node:
        await count.enqueue_many([(number,) for number in range(2_000)])
        most = 0
        async with asyncio.timeout(60):
            while len(ran) < 2_000:
                most = max(most, node.looked_ahead)
                await asyncio.sleep(0.005)
        await node.drained(10)

        assert sorted(ran) == list(range(2_000))
        assert most <= 50
