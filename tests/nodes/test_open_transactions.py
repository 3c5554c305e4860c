"""A transaction that stays open, anywhere on the server, delays no task."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from conditions import until
from holdfast.dispatch.limits import Limits
from holdfast.task import Trigger
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
    """More tasks wait than the owner may remember; some still wait when the transaction ends."""
    owner = owner_of("owner", slots=0, remembered_max=100)
    owner.slots.slots_max = 20
    await owner.take([0])
    partition = owner.dispatcher.intake.partitions[0]
    ids = await enqueued(store, 50)
    owner.dispatcher.hear(())  # the doorbell
    await until(lambda: len(owner.store.appended) == 50)
    async with held_open(store_url):
        ids += await enqueued(store, 400)
        owner.dispatcher.hear(())
        await until(lambda: len(owner.store.appended) > 50)
        most = 0
        running = asyncio.create_task(owner.run(400))
        while not running.done():
            most = max(most, owner.remembered)
            await asyncio.sleep(0)
        await running
    (last,) = await enqueued(store, 1)  # once this one is below P, so are all the others
    owner.dispatcher.hear(())
    await until(lambda: last in {id for id, _ in owner.store.appended})
    await until(lambda: partition.position.arrived > 0 and not partition.is_dirty)
    twice = [id for id, count in owner.store.appended.items() if count > 1]
    owner.open_up()
    await until(lambda: len(owner.grabbed) >= 451)
    await until(lambda: owner.dispatcher.is_idle)

    assert most <= 100
    assert sorted(owner.ids) == [*ids, last], "each of them once, and 400 while it was open"
    assert not twice, "nothing is ingested twice when it ends"


@pytest.mark.req("TASK-92")
async def test_what_was_ingested_early_is_not_ingested_again_when_it_ends(
    store, store_url, owner_of
):
    owner = owner_of("owner", slots=0)
    await owner.take([0])
    partition = owner.dispatcher.intake.partitions[0]
    ids = await enqueued(store, 10)
    owner.dispatcher.hear(())
    await until(lambda: len(owner.store.appended) == 10)
    async with held_open(store_url):
        ids += await enqueued(store, 20)
        owner.dispatcher.hear(())
        await until(lambda: len(owner.store.appended) == 30)
    await until(lambda: not partition.remembered)  # the exact read has come by, and P is above them
    owner.open_up()
    await until(lambda: len(owner.grabbed) == 30)
    await until(lambda: owner.dispatcher.is_idle)

    assert owner.store.appended == Counter((id, 1) for id in ids)
    assert sorted(owner.ids) == ids


async def test_what_has_run_is_not_remembered_any_longer(store, store_url, owner_of):
    owner = owner_of("owner", slots=0)
    await owner.take([0])
    partition = owner.dispatcher.intake.partitions[0]
    await enqueued(store, 10)
    owner.dispatcher.hear(())
    await until(lambda: len(owner.store.appended) == 10)
    async with held_open(store_url):
        more = await enqueued(store, 20)
        owner.dispatcher.hear([Trigger(id, 1, "default", 0, "email", 5) for id in more])
        await until(lambda: len(partition.remembered) > 0)
        owner.open_up()
        await until(lambda: len(owner.grabbed) == 30)
        await until(lambda: owner.dispatcher.is_idle)
    await until(lambda: not partition.remembered, timeout_s=2)


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
