"""A transaction that stays open, anywhere on the server, delays no task."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from conditions import until
from holdfast.dispatch.limits import Limits
from holdfast.testing.apps import fresh, opened
from nodes.owner import enqueued


@asynccontextmanager
async def held_open(url: str) -> AsyncIterator[None]:
    """Transactions that nobody ends: writers with an xid here and in another database of the
    server; on SQLite a reader, which is all that can stay open beside other writers."""
    if url.startswith("sqlite:"):
        reader = sqlite3.connect(url.removeprefix("sqlite:///"))
        try:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM sqlite_master").fetchall()
            yield
        finally:
            reader.close()
        return
    here = await asyncpg.connect(url)
    elsewhere = await asyncpg.connect(url.rpartition("/")[0] + "/postgres")
    try:
        for one in (here, elsewhere):
            await one.execute("BEGIN")
            await one.fetchval("SELECT pg_current_xact_id()::text")
        yield
    finally:
        await here.close()
        await elsewhere.close()


async def test_tasks_start_at_once_while_a_transaction_stays_open(store_url):
    app = fresh(store_url)
    loop = asyncio.get_running_loop()
    started: dict[int, float] = {}

    @app.task
    async def note(number: int) -> None:
        started[number] = loop.time()

    async with opened(app), held_open(store_url), app.node() as node:
        waits = []
        for number in range(50):
            asked_at = loop.time()
            await note.enqueue(number)
            await until(lambda number=number: number in started)
            waits.append(started[number] - asked_at)
        await node.drained(10)

    assert max(waits) < 1.0


@pytest.mark.req("TASK-92")
async def test_a_standing_backlog_goes_on_in_bounded_memory_and_is_ingested_once(
    store, store_url, owner_of
):
    """More tasks wait than the owner may remember; all run while the transaction is open."""
    owner = owner_of("owner", slots=5, remembered_max=100)
    await owner.take([0])
    most = 0
    async with held_open(store_url):
        first = await enqueued(store, 50)
        owner.dispatcher.hear(())  # the doorbell
        await until(lambda: len(owner.grabbed) == 5)
        rest = await enqueued(store, 400)
        owner.dispatcher.hear(())
        for _ in range(50):
            most = max(most, owner.remembered)
            await asyncio.sleep(0.01)
        owner.release()
        async with asyncio.timeout(10):
            while len(owner.grabbed) < 450:
                most = max(most, owner.remembered)
                await asyncio.sleep(0)
    await until(lambda: owner.remembered == 0)
    await until(lambda: owner.dispatcher.is_idle)
    (loaded,) = await store.load("default", [0])

    assert most <= 100
    assert sorted(owner.ids) == [*first, *rest], "each of them once"
    assert set(owner.store.appended.values()) <= {1}, "nothing is ingested twice"
    assert loaded.position > (0, 0)


async def test_a_lost_trigger_is_found_under_steady_load_beside_an_open_transaction(store_url):
    """The books are woken all the time and the horizon stands still: only early reads find it."""
    app = fresh(store_url, wrap_bus=Selective)
    started: list[int] = []

    @app.task
    async def note(number: int) -> None:
        started.append(number)

    loop = asyncio.get_running_loop()
    async with opened(app), held_open(store_url), app.node(limits=Limits(idle_wait_s=0.5)) as node:
        lost_at, number = 0.0, 0
        while -1 not in started and (not lost_at or loop.time() - lost_at < 4):
            await note.enqueue(number)
            number += 1
            await asyncio.sleep(0.02)
            if number == 40:  # the first reads after the start are over
                Selective.is_losing = True
                await note.enqueue(-1)
                Selective.is_losing = False
                lost_at = loop.time()
        found_s = loop.time() - lost_at
        await node.drained(10)

    assert found_s <= 0.5 + 0.5


class Selective:
    """A bus that loses what is published while `is_losing`, and carries no doorbell."""

    is_losing = False

    def __init__(self, bus) -> None:
        self._bus = bus

    def __getattr__(self, name):
        return getattr(self._bus, name)

    def publish(self, triggers) -> None:
        if not Selective.is_losing:
            self._bus.publish(triggers)

    async def subscribe(self, queues, hear) -> None:
        await self._bus.subscribe(queues, lambda queue, some: hear(queue, some) if some else ())

    async def unsubscribe(self, hear) -> None:
        await self._bus.close()
