"""The whole of Holdfast behind a pooler in transaction mode: enqueue, node, cancel, migrate."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import asyncpg
import pytest

import holdfast
from conditions import until
from holdfast import Holdfast, Retry, State
from holdfast.config import Config
from holdfast.dispatch.limits import Limits
from holdfast.errors import TaskNotDone
from holdfast.store import Answer
from holdfast.testing.apps import opened
from holdfast.testing.pgbouncer import PgBouncer
from schema import NEWEST

PACKAGE = Path(holdfast.__file__).parents[1]
PATIENCE_S = 30.0

pytestmark = pytest.mark.store("postgres")


class Shop:
    """An app with one task of each sort, and what its handlers saw."""

    def __init__(self, url: str, listen_url: str | None = None) -> None:
        config = Config(url=url, listen_url=listen_url)
        self.app = app = Holdfast(config=config, rng=Random(1))
        self.starts = 0
        self.cancelled = 0

        @app.task
        async def add(a: int, b: int) -> int:
            return a + b

        @app.task(retry=Retry(attempts=3, delay=0.05))
        async def third_time_lucky() -> int:
            self.starts += 1
            if self.starts < 3:
                raise ValueError("not yet")
            return self.starts

        @app.task
        async def for_ever() -> None:
            self.starts += 1
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise

        @app.task(transactional=True)
        async def pay(tx: asyncpg.Connection, number: int) -> None:
            await tx.execute("INSERT INTO effect VALUES ($1)", number)

        self.add, self.third_time_lucky, self.for_ever, self.pay = (
            add,
            third_time_lucky,
            for_ever,
            pay,
        )


@asynccontextmanager
async def working(shop: Shop, **settings: object) -> AsyncIterator[None]:
    async with opened(shop.app), shop.app.node(**settings):
        assert (await shop.app.store()).is_pooled
        yield


async def fetched(url: str, sql: str) -> list[tuple]:
    connection = await asyncpg.connect(url)
    try:
        return [tuple(row) for row in await connection.fetch(sql)]
    finally:
        await connection.close()


async def test_results_come_back_through_the_pooler(pgbouncer_url):
    shop = Shop(pgbouncer_url)
    async with working(shop):
        handles = [await shop.add.enqueue(n, 1) for n in range(20)]
        handles += await shop.add.enqueue_many([(n, 1) for n in range(20, 300)])

        results = [await handle.result(timeout=PATIENCE_S) for handle in handles]

        assert results == [n + 1 for n in range(300)]


async def test_a_retry_runs_again_through_the_pooler(pgbouncer_url):
    shop = Shop(pgbouncer_url)
    async with working(shop):
        handle = await shop.third_time_lucky.enqueue()

        assert await handle.result(timeout=PATIENCE_S) == 3
        assert (await handle.task()).deliveries == 3


async def test_a_running_task_is_cancelled_through_the_pooler(pgbouncer_url):
    shop = Shop(pgbouncer_url)
    async with working(shop):
        handle = await shop.for_ever.enqueue()
        await until(lambda: shop.starts == 1, PATIENCE_S)

        assert await handle.cancel() is Answer.OK
        await until(lambda: shop.cancelled == 1, PATIENCE_S)

        with pytest.raises(TaskNotDone) as ended:
            await handle.result(timeout=PATIENCE_S)
        assert ended.value.state == "CANCELLED"
        assert await (await shop.add.enqueue(1, 2)).result(timeout=PATIENCE_S) == 3


async def test_a_handler_commits_with_its_settle_through_the_pooler(pgbouncer_url, postgres_url):
    await fetched(postgres_url, "CREATE TABLE effect (number integer NOT NULL)")
    shop = Shop(pgbouncer_url)
    async with working(shop):
        handles = await shop.pay.enqueue_many([(n,) for n in range(40)])
        for handle in handles:
            await handle.result(timeout=PATIENCE_S)

    effects = await fetched(postgres_url, "SELECT count(*), count(DISTINCT number) FROM effect")
    assert effects == [(40, 40)]


async def test_a_task_enqueued_in_the_callers_transaction_runs_after_its_commit(pgbouncer_url):
    shop = Shop(pgbouncer_url)
    async with working(shop):
        connection = await asyncpg.connect(pgbouncer_url, statement_cache_size=0)
        try:
            async with connection.transaction():
                handle = await shop.add.options(within=connection).enqueue(20, 22)
                assert await (await shop.app.store()).get([handle.id]) == {}
            assert await handle.result(timeout=PATIENCE_S) == 42
        finally:
            await connection.close()


async def test_a_node_that_cannot_listen_finds_tasks_of_others_at_its_idle_wait(pgbouncer_url):
    shop, other = Shop(pgbouncer_url), Shop(pgbouncer_url)
    async with working(shop, limits=Limits(idle_wait_s=0.3)), opened(other.app):
        handle = await other.add.enqueue(1, 1)

        assert await handle.result(timeout=PATIENCE_S) == 2


async def test_a_direct_address_for_listening_wakes_a_pooled_node_at_once(
    pgbouncer_url, postgres_url
):
    shop, other = Shop(pgbouncer_url, postgres_url), Shop(pgbouncer_url, postgres_url)
    async with working(shop, limits=Limits(idle_wait_s=600.0)), opened(other.app):
        await (await other.add.enqueue(0, 0)).result(timeout=PATIENCE_S)  # the takeover has passed
        handle = await other.add.enqueue(1, 1)
        result = await handle.result(timeout=PATIENCE_S)

        running = await other.for_ever.enqueue()
        await until(lambda: shop.starts == 1, PATIENCE_S)
        answer = await running.cancel()
        await until(lambda: shop.cancelled == 1, PATIENCE_S)

        assert (result, answer) == (2, Answer.OK)


async def test_two_nodes_behind_one_pooler_run_each_task_once(pgbouncer_url):
    shops = [Shop(pgbouncer_url), Shop(pgbouncer_url)]
    limits = Limits(idle_wait_s=0.3)
    async with (
        working(shops[0], limits=limits, tick_s=0.2),
        working(shops[1], limits=limits, tick_s=0.2),
    ):
        handles = await shops[0].add.enqueue_many([(n, n) for n in range(500)])
        results = [await handle.result(timeout=PATIENCE_S) for handle in handles]
        tasks = await (await shops[0].app.store()).get([handle.id for handle in handles])

    assert results == [2 * n for n in range(500)]
    assert {(task.state, task.deliveries) for task in tasks.values()} == {(State.DONE, 1)}


async def test_more_clients_than_server_connections_wait_and_lose_nothing(postgres, postgres_url):
    with PgBouncer(postgres.url(), pool_size=2) as pooler:
        shop = Shop(pooler.url(postgres_url.rpartition("/")[2]))
        async with working(shop):
            handles = await asyncio.gather(*(shop.add.enqueue(n, 0) for n in range(200)))
            results = [await handle.result(timeout=PATIENCE_S) for handle in handles]

    assert results == list(range(200))


def test_the_command_line_migrates_and_asks_through_the_pooler(bare_pgbouncer_url, tmp_path):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HOLDFAST_")}
    environment |= {"PYTHONPATH": str(PACKAGE), "HOLDFAST_URL": bare_pgbouncer_url}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "holdfast.cli", *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    before = run("db", "status")
    first, second = run("db", "migrate"), run("db", "migrate")
    after = run("db", "status", "--json")

    assert before.returncode == 4
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert all(f"version {NEWEST}" in done.stderr for done in (first, second))
    assert json.loads(after.stdout)["fits"] is True
