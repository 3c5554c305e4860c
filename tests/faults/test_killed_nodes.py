"""Nodes are killed with kill -9; what they ran goes on elsewhere, and effects are exact."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from random import Random

import pytest

from holdfast import Holdfast, State
from holdfast.store import Filter
from holdfast.testing.apps import opened

CHILD = Path(__file__).with_name("node_process.py")


class Fleet:
    """Node processes of one store: one at a time on SQLite, several on PostgreSQL."""

    def __init__(self, url: str, rng: Random) -> None:
        self.url = url
        self.size = 1 if url.startswith("sqlite:") else 3
        self.killed = 0
        self._rng = rng
        self._nodes: list[asyncio.subprocess.Process] = []

    async def __aenter__(self) -> Fleet:
        await self.fill()
        return self

    async def __aexit__(self, *_: object) -> None:
        for node in self._nodes:
            node.kill()
            await node.communicate()

    async def fill(self) -> None:
        while len(self._nodes) < self.size:
            node = await asyncio.create_subprocess_exec(
                sys.executable, str(CHILD), self.url, stdout=asyncio.subprocess.PIPE
            )
            assert node.stdout is not None
            line = await asyncio.wait_for(node.stdout.readline(), 30)
            assert line.startswith(b"ready"), line
            self._nodes.append(node)

    async def kill_one(self) -> None:
        node = self._nodes.pop(self._rng.randrange(len(self._nodes)))
        os.kill(node.pid, signal.SIGKILL)
        await node.communicate()
        self.killed += 1


def producer(url: str):
    """The same tasks as in node_process.py, only to enqueue them."""
    app = Holdfast(url)

    @app.task(transactional=True)
    async def pay(tx, number: int) -> None: ...

    @app.task
    async def linger(seconds: float) -> None: ...

    return app, pay, linger


async def rows(app: Holdfast, sql: str) -> list[tuple]:
    store = await app.store()
    if app.config.url.startswith("sqlite:"):
        import sqlite3

        db = sqlite3.connect(app.config.url.removeprefix("sqlite:///"), timeout=30)
        try:
            found = db.execute(sql).fetchall()
            db.commit()
            return found
        finally:
            db.close()
    import asyncpg

    assert store is not None
    connection = await asyncpg.connect(app.config.url)
    try:
        return [tuple(row) for row in await connection.fetch(sql)]
    finally:
        await connection.close()


async def drained(app: Holdfast, timeout_s: float) -> None:
    store = await app.store()
    unfinished = (State.WAITING, State.SUBMITTED, State.PROCESSING)
    async with asyncio.timeout(timeout_s):
        while await store.find(Filter(states=unfinished, limit=1)):
            await asyncio.sleep(0.1)


@pytest.mark.whole
@pytest.mark.req("TASK-90")
async def test_ten_thousand_effects_happen_exactly_once_under_kill_9(store_url):
    app, pay, _ = producer(store_url)
    async with opened(app):
        await rows(app, "CREATE TABLE effect (number INTEGER NOT NULL, version INTEGER NOT NULL)")
        for first in range(0, 10_000, 1_000):
            await pay.enqueue_many([(first + n,) for n in range(1_000)])
        async with Fleet(store_url, Random(5)) as fleet:
            for _ in range(5):
                await asyncio.sleep(0.7)
                await fleet.kill_one()
                await fleet.fill()
            await drained(app, 120)

        effects = await rows(app, "SELECT count(*), count(DISTINCT number) FROM effect")
        counts = await (await app.store()).counts()
        assert fleet.killed == 5
        assert effects == [(10_000, 10_000)]
        assert counts[State.DONE] == 10_000


@pytest.mark.whole
async def test_a_hundred_tasks_of_a_killed_worker_run_again_within_a_minute(store_url):
    app, _, linger = producer(store_url)
    async with opened(app), Fleet(store_url, Random(6)) as fleet:
        store = await app.store()
        async with asyncio.timeout(20):  # whoever is killed has a share of the tasks
            while len({h.owner for h in await store.holdings("default") if h.owner}) < fleet.size:
                await asyncio.sleep(0.02)
        handles = await linger.enqueue_many([(1.0,)] * 100)
        busy = Filter(states=[State.PROCESSING], limit=200)
        async with asyncio.timeout(20):
            while len(await store.find(busy)) < 100:
                await asyncio.sleep(0.02)
        loop = asyncio.get_running_loop()
        killed_at = loop.time()
        await fleet.kill_one()
        if fleet.size == 1:
            await fleet.fill()  # on SQLite there is one node process; it comes back
        await drained(app, 60)

        assert loop.time() - killed_at < 60
        tasks = await store.get([handle.id for handle in handles])
        assert all(task.state is State.DONE for task in tasks.values())
        assert any(task.deliveries == 2 for task in tasks.values())


@pytest.mark.whole
async def test_a_delayed_task_starts_at_most_five_seconds_late_and_never_early(store_url):
    app, _, linger = producer(store_url)
    async with opened(app), Fleet(store_url, Random(7)):
        handles = [await linger.options(delay=1.5).enqueue(0.0) for _ in range(5)]
        loop = asyncio.get_running_loop()
        enqueued_at = loop.time()
        waits = []
        for handle in handles:
            await handle.result(timeout=20)
            waits.append(loop.time() - enqueued_at)

        assert all(1.4 <= wait <= 6.5 for wait in waits), waits
