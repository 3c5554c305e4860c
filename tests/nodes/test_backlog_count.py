"""A node says how much waits for it, and how long the oldest of it has waited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from conditions import until
from holdfast import BacklogSize, Holdfast, State, TaskDefinition
from holdfast.clock import SystemClock
from holdfast.dispatch.limits import Limits
from holdfast.dispatch.size import backlog_size
from holdfast.errors import UnknownQueue
from nodes.fleet import Fleet, Peer
from nodes.owner import enqueued

MANY = 3_000
QUICK: dict[str, Any] = {"lease_s": 3.0, "tick_s": 0.1, "drain_s": 0.1}
SMALL = Limits(look_ahead=400, window=50, reload_at=10, exact_s=0.05, idle_wait_s=0.2)
LANES = {"window": 40, "reload_at": 10, "look_ahead": 200, "spill_s": 0.001, "spill_s_max": 0.01}


class Work:
    """Handlers that stop at a door."""

    def __init__(self) -> None:
        self.door = asyncio.Event()

    def register(self, app: Holdfast, name: str) -> dict[str, Any]:
        @app.task
        async def work(number: int) -> None:
            await self.door.wait()

        return {"work": work}


async def size_when(peer: Peer, condition: Callable[[BacklogSize], bool]) -> BacklogSize:
    async with asyncio.timeout(30):
        while not condition(size := await peer.node.backlog("default")):
            await asyncio.sleep(0.02)
        return size


async def submitted(peer: Peer) -> int:
    return (await peer.store.real.counts()).get(State.SUBMITTED, 0)


async def enqueue(task: TaskDefinition[[int], None], many: int) -> None:
    for start in range(0, many, 1_000):
        await task.enqueue_many([(n,) for n in range(start, min(start + 1_000, many))])


@pytest.mark.req("FAIR-73")
async def test_the_count_is_an_estimate_before_the_end_of_the_backlog_and_exact_at_it(store_url):
    work = Work()
    async with Fleet(store_url, work.register, limits=SMALL, slots_async=20, **QUICK) as fleet:
        peer = await fleet.join()
        assert await size_when(peer, lambda s: s.is_exact) == BacklogSize(0, True, None)
        await enqueue(peer.tasks["work"], MANY)
        await until(lambda: peer.node.in_flight == 20)

        # While all of them are still in memory, the count may be exact.
        enough = 0.95 * (MANY - 20)
        size = await size_when(peer, lambda size: size.count >= enough and not size.is_exact)
        assert size.count <= 1.05 * (MANY - 20)

        seen: list[BacklogSize] = []
        work.door.set()
        while not seen or seen[-1].count:
            seen.append(await peer.node.backlog("default"))
        await peer.node.drained(30)
        assert min(size.count for size in seen) >= 0
        assert await size_when(peer, lambda s: s.is_exact) == BacklogSize(0, True, None)


@pytest.mark.req("FAIR-73")
async def test_at_the_end_the_count_is_that_of_the_tasks_that_wait(store_url):
    work = Work()
    async with Fleet(store_url, work.register, slots_async=5, **QUICK) as fleet:
        peer = await fleet.join()
        await enqueue(peer.tasks["work"], 200)
        await until(lambda: peer.node.in_flight == 5)
        await enqueue(peer.tasks["work"], 37)  # some skip the backlog, others stand in it

        size = await size_when(peer, lambda size: size.is_exact and size.count >= 232)

        assert size.count == await submitted(peer) == 232
        work.door.set()
        await peer.node.drained(30)


@pytest.mark.req("FAIR-73")
async def test_the_age_is_that_of_the_oldest_trigger(store_url):
    work, loop = Work(), asyncio.get_running_loop()
    async with Fleet(store_url, work.register, limits=SMALL, slots_async=5, **QUICK) as fleet:
        peer = await fleet.join()
        await enqueue(peer.tasks["work"], 5)
        await until(lambda: peer.node.in_flight == 5)
        began = loop.time()
        await enqueue(peer.tasks["work"], 1)
        ended = loop.time()
        await until(lambda: loop.time() > ended + 1)
        await enqueue(peer.tasks["work"], 500)

        size = await size_when(peer, lambda size: size.count >= 450)

        assert size.oldest_s == pytest.approx(loop.time() - (began + ended) / 2, abs=0.5)
        assert size.oldest_s > 1, "not that of those who came later, or run"
        work.door.set()
        await peer.node.drained(30)
        assert (await peer.node.backlog("default")).oldest_s is None


@pytest.mark.req("FAIR-73")
async def test_after_a_takeover_the_count_is_an_estimate_and_then_exact(store_url):
    work, loop = Work(), asyncio.get_running_loop()
    async with Fleet(store_url, work.register, limits=SMALL, slots_async=10, **QUICK) as fleet:
        began = loop.time()
        # Before anybody hears of them: what was appended early may stand there twice afterwards.
        async with Holdfast(store_url) as app:
            await enqueue(work.register(app, "caller")["work"], MANY)
        first = await fleet.join()
        await size_when(first, lambda size: size.count >= MANY - 50)
        await fleet.leave(first)

        second = await fleet.join()
        await until(lambda: second.node.in_flight == 10)
        size = await size_when(second, lambda size: size.count >= 0.9 * MANY)

        assert size.count <= 1.1 * MANY and not size.is_exact
        assert 0 < size.oldest_s <= loop.time() - began + 0.5
        work.door.set()
        await second.node.drained(30)
        assert await size_when(second, lambda s: s.is_exact) == BacklogSize(0, True, None)


async def test_nodes_answer_for_their_own_partitions(store_url):
    work = Work()
    async with Fleet(store_url, work.register, slots_async=5, **QUICK) as fleet:
        peers = [await fleet.join(), await fleet.join()]
        await fleet.until_shared()
        await enqueue(peers[0].tasks["work"], 300)
        await until(lambda: sum(peer.node.in_flight for peer in peers) == 10)

        async with asyncio.timeout(30):
            while True:
                sizes = [await peer.node.backlog("default") for peer in peers]
                if sum(size.count for size in sizes) == 290 and all(s.is_exact for s in sizes):
                    break
                await asyncio.sleep(0.02)

        assert all(size.count > 0 for size in sizes)
        work.door.set()
        await fleet.until_drained()


async def test_a_key_that_may_not_go_on_counts_although_its_lane_is_not_in_memory(store, owner_of):
    await enqueued(store, 500, fairness_key="paused")
    await enqueued(store, 300, fairness_key="busy")
    owner = owner_of("one", **LANES)
    owner.slots.refused = {"paused"}
    owner.release()
    await owner.take([0])
    await until(lambda: len(owner.grabbed) == 300)

    size = await backlog_size(store, owner.dispatcher, clock=SystemClock())

    assert size.count == pytest.approx(500, rel=0.1) and size.oldest_s > 0
    assert len(owner.dispatcher.intake.table) <= 80 and owner.dispatcher.intake.stored


async def test_a_queue_that_the_node_does_not_serve_is_refused_with_a_sentence(store_url):
    async with Fleet(store_url, Work().register, **QUICK) as fleet:
        peer = await fleet.join()

        with pytest.raises(UnknownQueue, match="serves default, not 'mail'"):
            await peer.node.backlog("mail")
