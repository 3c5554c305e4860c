"""The store fails, loses replies or goes away; nothing is lost and nothing runs twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random

import pytest

from conditions import until
from holdfast.dispatch.limits import Limits
from holdfast.errors import StoreUnavailable
from holdfast.ids import NodeId
from holdfast.testing.apps import fresh, opened
from holdfast.testing.faults import FaultyStore

QUICK = Limits(idle_wait_s=0.3, retry_s=0.01, retry_s_max=0.1)


def faulty_app(store_url: str, **faults):
    stores: list[FaultyStore] = []

    def wrap(store):
        stores.append(FaultyStore(store, rng=Random(7), **faults))
        return stores[0]

    app = fresh(store_url, wrap_store=wrap)
    ran: Counter[int] = Counter()

    @app.task
    async def count(number: int) -> None:
        ran[number] += 1

    return app, count, ran, stores


@pytest.mark.req("TASK-93")
async def test_a_grab_whose_reply_is_lost_is_repeated_and_returns_the_same_tasks(store_url):
    app, count, ran, stores = faulty_app(store_url, lose_reply=0.5, verbs=["grab"])
    async with opened(app), app.node(limits=QUICK) as node:
        for number in range(60):
            await count.enqueue(number)
        await until(lambda: len(ran) == 60)
        await node.drained(10)

        assert set(ran.values()) == {1}
        assert stores[0].calls["grab"] > 1


@pytest.mark.req("TASK-93")
async def test_a_grab_whose_reply_is_lost_together_with_its_partition_runs_all_the_same(store_url):
    """Its ordering key stands still until then, and nobody else knows of it."""
    stranger, lost = NodeId("stranger"), []

    def wrap(store):
        inner = store.grab

        async def grab(triggers, **options):
            answer = await inner(triggers, **options)
            if lost:
                return answer
            lost.extend(answer.tasks)
            await store.renew(stranger, lease_s=60.0, queues=["default"], kinds=[])
            seen = {one.partition: one.epoch for one in await store.holdings("default")}
            await store.let_go("default", list(seen), node=options["node"])
            seen = {one.partition: one.epoch for one in await store.holdings("default")}
            await store.claim("default", seen, node=stranger)
            raise StoreUnavailable("the answer was lost")

        store.grab = grab
        return store

    app = fresh(store_url, wrap_store=wrap)
    ran: Counter[int] = Counter()

    @app.task
    async def count(number: int) -> None:
        ran[number] += 1

    async with opened(app), app.node(limits=QUICK) as node:
        await count.options(ordering_key="k").enqueue(7)
        await until(lambda: ran[7])
        await node.drained(10)

    assert len(lost) == 1 and ran == {7: 1}


@pytest.mark.req("TASK-89")
async def test_a_store_that_is_away_for_a_while_loses_and_doubles_nothing(store_url):
    app, count, ran, stores = faulty_app(store_url)
    async with opened(app), app.node(limits=QUICK, slots_async=2) as node:
        await count.enqueue_many([(number,) for number in range(300)])
        await until(lambda: len(ran) > 20)
        stores[0].is_down = True
        for _ in range(20):
            await asyncio.sleep(0.05)
        stuck = len(ran)
        stores[0].is_down = False
        await until(lambda: len(ran) == 300)
        await node.drained(10)

        assert stuck < 300
        assert set(ran.values()) == {1}


async def test_a_standing_backlog_drains_to_nothing_under_injected_faults(store_url):
    app, count, ran, stores = faulty_app(store_url, fail_before=0.005, lose_reply=0.005, slow=0.005)
    keys = Random(3)
    async with opened(app):
        stores[0].heal()
        for first in range(0, 3_000, 500):
            key = f"key {min(int(keys.paretovariate(1.1)), 30)}"
            options = count.options(fairness_key=key)
            await options.enqueue_many([(first + n,) for n in range(500)])
        stores[0].rates = {"fail_before": 0.005, "lose_reply": 0.005, "slow": 0.005}
        async with app.node(limits=QUICK, slots_async=50) as node:
            await until(lambda: len(ran) == 3_000, timeout_s=60)
            stores[0].heal()
            await node.drained(20)

            assert set(ran.values()) == {1}
            assert node.in_flight == node.looked_ahead == 0
