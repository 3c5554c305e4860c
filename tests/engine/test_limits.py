"""Limits, pauses, weights and cost, set while nodes run: what handlers see of them."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from conditions import until
from holdfast.errors import ConfigurationError
from holdfast.store import Cursor


class Gauge:
    """Counts handlers that run at once, in all and by key, and the highest counts seen."""

    def __init__(self) -> None:
        self.now: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.order: list[str] = []
        self.starts: list[float] = []
        self.may_end = asyncio.Event()
        self.may_end.set()

    async def run(self, *names: str, seconds: float = 0.0) -> None:
        self.order.append(names[-1])
        self.starts.append(asyncio.get_running_loop().time())
        for name in ("all", *names):
            self.now[name] += 1
            self.most[name] = max(self.most[name], self.now[name])
        if seconds:
            await asyncio.sleep(seconds)
        await self.may_end.wait()
        for name in ("all", *names):
            self.now[name] -= 1


@pytest.fixture
def gauge() -> Gauge:
    return Gauge()


def kinds_of(app, gauge):
    @app.task(queue="pay")
    async def payout(partner: str, seconds: float = 0.02) -> None:
        await gauge.run("payout", partner, seconds=seconds)

    @app.task(queue="pay")
    async def letter(partner: str, seconds: float = 0.0) -> None:
        await gauge.run("letter", partner, seconds=seconds)

    return payout, letter


async def test_limits_compose_thirty_in_all_fifteen_payouts_three_a_partner(app, gauge):
    payout, letter = kinds_of(app, gauge)
    queue = app.queue("pay")
    await queue.limit("total", concurrency=30)
    await queue.limit("payouts", concurrency=15, kind="payout")
    await queue.limit("partner", concurrency=3, kind="payout", key="*")
    for n in range(200):
        partner = f"p{n % 5}"
        await payout.options(fairness_key=partner).enqueue(partner, 0.05)
    await letter.enqueue_many([("x", 0.05)] * 200)

    async with app.node(queues=["pay"], slots_async=500) as node:
        await node.drained(60)

    partners = [gauge.most[f"p{n}"] for n in range(5)]
    assert (gauge.most["all"], gauge.most["payout"], partners) == (30, 15, [3] * 5)


@pytest.mark.req("TASK-54")
async def test_a_limit_over_several_nodes_is_never_exceeded_and_is_reached(make_app, gauge):
    apps = [await make_app() for _ in range(3)]
    tasks = [kinds_of(app, gauge)[0] for app in apps]
    await apps[0].queue("pay").limit("payouts", concurrency=7)
    await tasks[0].enqueue_many([("p",)] * 400)

    async with apps[0].node(queues=["pay"]) as node:
        if not str(apps[0].config.url).startswith("sqlite"):
            async with apps[1].node(queues=["pay"]), apps[2].node(queues=["pay"]):
                await node.drained(60)
        await node.drained(60)

    assert gauge.most["all"] == 7
    assert len(gauge.order) == 400


@pytest.mark.req("FAIR-70")
async def test_a_rate_holds_a_burst_is_its_second_and_others_are_not_blocked(app, gauge):
    payout, letter = kinds_of(app, gauge)
    await app.queue("pay").limit("slowly", rate=20.0, kind="payout")
    await payout.enqueue_many([("p", 0.0)] * 50)
    await letter.enqueue_many([("x",)] * 50)

    loop = asyncio.get_running_loop()
    async with app.node(queues=["pay"]) as node:
        started = loop.time()
        await until(lambda: gauge.order.count("x") == 50, 5)
        assert loop.time() - started < 1.2, "letters are not limited"
        await node.drained(30)

    paid = [at for at, name in zip(gauge.starts, gauge.order, strict=True) if name == "p"]
    assert len(paid) == 50
    for place, at in enumerate(paid):
        until_then = sum(1 for other in paid if at - 1.0 < other <= at)
        assert until_then <= 41, (place, "a burst of 20 and what a second brings")
    assert paid[-1] - paid[0] >= 1.4


@pytest.mark.req("FAIR-70")
async def test_a_rate_per_key_is_scaled_by_weight_and_limits_no_other_key(app, gauge):
    payout, _ = kinds_of(app, gauge)
    await app.queue("pay").limit("partner", rate=10.0, key="*", burst=0.1)
    await payout.options(fairness_key="light").enqueue_many([("light", 0.0)] * 40)
    await payout.options(fairness_key="heavy", weight=4.0).enqueue_many([("heavy", 0.0)] * 80)
    await payout.enqueue_many([("none", 0.0)] * 30)

    async with app.node(queues=["pay"], drain_s=0.2):
        await until(lambda: gauge.order.count("none") == 30, 2)
        await asyncio.sleep(2.0)
        counts = Counter(gauge.order)

    assert 16 <= counts["light"] <= 34 and 62 <= counts["heavy"] <= 80
    await app.queue("pay").drop_limit("partner")
    async with app.node(queues=["pay"]) as node:
        await node.drained(20)


@pytest.mark.req("FAIR-70")
@pytest.mark.parametrize("words", [{}, {"kind": "payout"}, {"key": "acme"}], ids=str)
async def test_what_is_paused_starts_nothing_and_goes_on_at_once_when_resumed(app, gauge, words):
    payout, letter = kinds_of(app, gauge)
    queue = app.queue("pay")
    await queue.pause(**words)
    await payout.options(fairness_key="acme").enqueue_many([("acme", 0.0)] * 20)
    await letter.enqueue_many([("x",)] * 20)

    async with app.node(queues=["pay"]) as node:
        if words:
            await until(lambda: gauge.order.count("x") == 20, 5)
        await asyncio.sleep(0.6)
        assert gauge.order.count("acme") == 0
        assert gauge.order.count("x") == (20 if words else 0)
        await queue.resume(**words)
        await until(lambda: len(gauge.order) == 40, 3)
        await node.drained(5)


async def test_a_limit_may_be_raised_and_lowered_while_its_tasks_run(app, gauge):
    payout, _ = kinds_of(app, gauge)
    queue = app.queue("pay")
    await queue.limit("payouts", concurrency=2)
    await payout.enqueue_many([("p", 0.05)] * 600)

    async with app.node(queues=["pay"]) as node:
        await until(lambda: len(gauge.order) > 6)
        assert gauge.most["all"] == 2
        await queue.limit("payouts", concurrency=10)
        await until(lambda: gauge.now["all"] == 10, 5)
        await queue.limit("payouts", concurrency=4)
        await asyncio.sleep(1.0)  # a change reaches the nodes within a second
        gauge.most.clear()
        before = len(gauge.order)
        await until(lambda: len(gauge.order) > before + 30, 10)
        assert gauge.most["all"] == 4
        await queue.drop_limit("payouts")
        await node.drained(20)

    assert len(gauge.order) == 600


async def test_a_limit_that_comes_while_tasks_run_counts_them(app, gauge):
    payout, _ = kinds_of(app, gauge)
    gauge.may_end.clear()
    await payout.enqueue_many([("p", 0.0)] * 5)

    async with app.node(queues=["pay"]) as node:
        await until(lambda: gauge.now["all"] == 5)
        await app.queue("pay").limit("payouts", concurrency=6)
        await asyncio.sleep(0.7)
        await payout.enqueue_many([("p", 0.0)] * 5)
        await asyncio.sleep(0.5)
        assert gauge.now["all"] == 6
        gauge.may_end.set()
        await node.drained(10)


async def test_a_local_limit_is_counted_by_each_node_alone(app, gauge):
    payout, _ = kinds_of(app, gauge)
    await app.queue("pay").limit("here", concurrency=3, local=True)
    await payout.enqueue_many([("p", 0.01)] * 60)

    async with app.node(queues=["pay"]) as node:
        await node.drained(20)

    assert gauge.most["all"] == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({}, "either a concurrency or a rate"),
        ({"concurrency": 1, "rate": 1.0}, "either a concurrency or a rate"),
        ({"concurrency": -1}, "a whole number from 0, not -1"),
        ({"concurrency": 2.5}, "a whole number from 0, not 2.5"),
        ({"concurrency": True}, "a whole number from 0, not True"),
        ({"concurrency": 1, "key": ""}, "a kind or a key is not empty"),
        ({"rate": float("nan")}, "a rate is from 0"),
        ({"rate": 1.0, "burst": 0.0}, "a burst is up to"),
        ({"concurrency": 1, "key": "k" * 65}, "at most 64 bytes"),
    ],
    ids=str,
)
async def test_a_wrong_limit_is_refused_with_a_sentence_and_changes_nothing(app, words, message):
    with pytest.raises(ConfigurationError, match=message):
        await app.queue("pay").limit("wrong", **words)

    assert list((await app.queue("pay").rules()).limits) == []


# ── weights, modes and turns, as handlers see them ────────────────────────────────────────────


async def in_order(app, gauge, *, slots: int = 1, timeout_s: float = 30) -> list[str]:
    async with app.node(queues=["pay"], slots_async=slots) as node:
        await node.drained(timeout_s)
    return gauge.order


async def all_read(app) -> None:
    """Wait until everything that was enqueued stands in the backlog."""
    store = await app.store()
    async with asyncio.timeout(30):
        while True:
            loaded = await store.load("pay", range(store.partitions))
            cursors = [Cursor(each.partition, each.position) for each in loaded]
            if not (await store.arrivals("pay", cursors, limit=1, exact=False)).triggers:
                return
            await asyncio.sleep(0.05)


async def test_tenants_take_turns_by_weight_and_an_override_beats_the_tasks(app, gauge):
    _, letter = kinds_of(app, gauge)
    await app.queue("pay").weight("b", 5.0)
    await letter.options(fairness_key="a").enqueue_many([("a",)] * 60)
    await letter.options(fairness_key="b").enqueue_many([("b",)] * 100)

    order = await in_order(app, gauge)

    assert 46 <= order[:60].count("b") <= 54 and Counter(order) == {"a": 60, "b": 100}


@pytest.mark.req("FAIR-62")
async def test_priorities_are_strict_and_out_of_range_ones_are_clamped(app, gauge):
    _, letter = kinds_of(app, gauge)
    priorities = [5, 9, 0, 7, 2, 12, -3, None] * 25
    for place, priority in enumerate(priorities):
        options = {} if priority is None else {"priority": priority}
        chosen = 5 if priority is None else min(9, max(0, priority))
        key = f"k{place % 7}"
        await letter.options(fairness_key=key, **options).enqueue(str(chosen))

    order = [int(name) for name in await in_order(app, gauge)]

    pairs = len(order) * (len(order) - 1) // 2
    inversions = sum(a > b for n, a in enumerate(order) for b in order[n + 1 :])
    assert len(order) == 200 and inversions / pairs < 0.1


@pytest.mark.req("FAIR-75")
async def test_kinds_with_room_take_turns_under_one_shared_limit(app, gauge):
    payout, letter = kinds_of(app, gauge)
    queue = app.queue("pay")
    await queue.limit("shared", concurrency=4)
    await queue.pause()
    for _ in range(10):
        await payout.options(fairness_key="a").enqueue_many([("x", 0.0)] * 1_000)
    await letter.options(fairness_key="b").enqueue_many([("y",)] * 100)

    async with app.node(queues=["pay"]) as node:
        await all_read(app)
        await queue.resume()
        await node.drained(60)

    order = gauge.order
    last = max(place for place, name in enumerate(order) if name == "y")
    assert 190 <= last <= 215, "one to one until the second kind is empty"
    assert Counter(order) == {"x": 10_000, "y": 100}


@pytest.mark.req("FAIR-72")
@pytest.mark.parametrize("mode", ["off", "count"])
async def test_switching_fairness_serves_the_old_backlog_first_in_its_old_order(app, gauge, mode):
    _, letter = kinds_of(app, gauge)
    queue = app.queue("pay")
    other = "count" if mode == "off" else "off"
    await queue.fairness(other)
    await queue.pause()
    await letter.options(fairness_key="a").enqueue_many([("a",)] * 40)
    await letter.options(fairness_key="b").enqueue_many([("b",)] * 20)

    async with app.node(queues=["pay"], slots_async=1) as node:
        await all_read(app)
        await queue.fairness(mode)
        await asyncio.sleep(0.7)
        await letter.options(fairness_key="c").enqueue_many([("c",)] * 10)
        await letter.options(fairness_key="d").enqueue_many([("d",)] * 10)
        await queue.resume()
        await node.drained(30)

    order = gauge.order
    old = "ab" * 20 + "a" * 20 if other == "count" else "a" * 40 + "b" * 20
    new = "c" * 10 + "d" * 10 if mode == "off" else "cd" * 10
    assert "".join(order[:60]) == old
    assert "".join(order[60:]) == new


@pytest.mark.req("FAIR-78")
async def test_with_cost_a_key_with_slow_tasks_gets_no_more_than_its_share_of_the_workers(
    app, gauge
):
    used: Counter[str] = Counter()

    @app.task(queue="pay")
    async def work(key: str, seconds: float) -> None:
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(seconds)
        used[key] += int((asyncio.get_running_loop().time() - began) * 1_000)
        gauge.order.append(key)

    await app.queue("pay").fairness("cost")
    await work.options(fairness_key="slow").enqueue_many([("slow", 0.1)] * 150)
    await work.options(fairness_key="fast").enqueue_many([("fast", 0.01)] * 1_500)

    async with app.node(queues=["pay"], slots_async=10, drain_s=0.2):
        await until(lambda: used["slow"] + used["fast"] >= 16_000, 30)
        share = 100 * used["slow"] / used.total()

    assert share == pytest.approx(50, abs=5)


async def test_an_unknown_fairness_is_refused_with_a_sentence(app):
    with pytest.raises(ConfigurationError, match="count, cost, off"):
        await app.queue("pay").fairness("lucky")
