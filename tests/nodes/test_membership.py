"""Nodes come and go at any time; partitions follow them, and no task is lost or run twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from conditions import until
from holdfast import Holdfast, State
from holdfast.dispatch.intake import ANYONE
from holdfast.dispatch.limits import Limits
from holdfast.store import Filter
from holdfast.task import Task, Trigger
from holdfast.telemetry.events import PartitionTaken, SettleRefused, TaskResumed
from nodes.fleet import Fleet, Peer

QUICK = Limits(idle_wait_s=0.5, retry_s=0.01, retry_s_max=0.1)


class Ran:
    """Who ran which number; a negative number holds on until the gate is opened."""

    def __init__(self) -> None:
        self.by: list[tuple[str, int]] = []
        self.gate = asyncio.Event()

    @property
    def counts(self) -> Counter[int]:
        return Counter(number for _, number in self.by)

    def names(self, first: int = 0) -> set[str]:
        return {name for name, number in self.by if number >= first}

    def register(self, app: Holdfast, name: str) -> dict[str, Any]:
        @app.task
        async def count(number: int) -> None:
            self.by.append((name, number))
            if number < 0:
                await self.gate.wait()

        return {"count": count}


def anyone(task: Task) -> Trigger:
    """A trigger for whoever hears it, whatever its partition."""
    return Trigger(
        task.id,
        task.version,
        task.queue,
        ANYONE,
        task.kind,
        task.priority,
        ordering_key=task.ordering_key,
    )


async def left_to(fleet: Fleet, owner: Peer, *, of: int) -> list[Task]:
    """The tasks in the owner's partitions, of so many enqueued and of which none was cleaned."""
    owners = await fleet.owners()
    found = await owner.store.real.find(Filter(limit=1_000))
    assert len(found) == of
    return [task for task in found if owners[task.partition] == owner.name]


async def enqueue(peer: Peer, numbers: range) -> None:
    await peer.tasks["count"].enqueue_many([(number,) for number in numbers])


class Stream:
    """Enqueues a number every few milliseconds, as long as the block lasts."""

    def __init__(self, peer: Peer) -> None:
        self.sent = 0
        self._is_over = False
        self._peer = peer

    async def __aenter__(self) -> Stream:
        self._loop = asyncio.create_task(self._send())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_over = True
        await self._loop

    async def _send(self) -> None:
        while not self._is_over:
            await self._peer.tasks["count"].enqueue(self.sent)
            self.sent += 1
            await asyncio.sleep(0.005)


async def test_a_third_node_gets_its_share_at_once_and_nothing_is_lost(store_url):
    """The owners grant a wish at their next beat, and the third takes it at its own."""
    ran = Ran()
    async with Fleet(store_url, ran.register, limits=QUICK) as fleet:
        first, _ = await fleet.join(), await fleet.join()
        await fleet.until_shared()
        loop = asyncio.get_running_loop()
        async with Stream(first) as stream:
            joined_at = loop.time()
            third = await fleet.join()
            wished = [n for n, name in fleet.shared().items() if name == third.name]
            while {(await fleet.owners())[n] for n in wished} & {"a", "b"}:
                await asyncio.sleep(0.01)
            granted_s = loop.time() - joined_at
            await fleet.until_shared()
            taken_s = loop.time() - joined_at
            seen = stream.sent
            await until(lambda: "c" in ran.names(seen))
        await fleet.until_drained()

        assert granted_s <= 1.0 + 0.3, "a wish is granted within a second"
        assert taken_s <= 2.0 + 0.5
        assert ran.counts == Counter(range(stream.sent))


async def test_the_partitions_of_a_node_that_leaves_move_at_once(store_url):
    ran = Ran()
    async with Fleet(store_url, ran.register, limits=QUICK, tick_s=0.2, lease_s=60.0) as fleet:
        first, second, _ = [await fleet.join() for _ in range(3)]
        await fleet.until_shared()
        loop = asyncio.get_running_loop()
        async with Stream(first) as stream:
            await until(lambda: {name for name, _ in ran.by} == {"a", "b", "c"})
            await fleet.leave(second)
            left_at = loop.time()
            await fleet.until_shared()
            moved_s = loop.time() - left_at
        await fleet.until_drained()

        assert moved_s <= 1.0, "no waiting for a lease of a minute"
        assert ran.counts == Counter(range(stream.sent))


async def test_a_node_that_leaves_hands_its_partitions_over_before_its_attempts_end(store_url):
    """Nobody else could start the tasks there, for as long as the longest attempt takes."""
    ran = Ran()
    async with Fleet(store_url, ran.register, limits=QUICK, tick_s=0.1) as fleet:
        first, second = await fleet.join(), await fleet.join()
        await fleet.until_shared()
        await enqueue(first, range(-64, 0))
        await until(lambda: len(ran.by) == 64)
        leaving = asyncio.create_task(fleet.leave(first))
        try:
            await enqueue(second, range(64))
            await until(lambda: ran.names() == {"b"} and len(ran.by) == 128, timeout_s=2)
        finally:
            ran.gate.set()
            await leaving


async def test_what_a_node_with_an_ended_lease_was_running_goes_on_elsewhere_at_once(store_url):
    """It was only cut off: its attempts end later, and are refused."""
    ran = Ran()
    settings = {"limits": QUICK, "tick_s": 0.2}
    async with Fleet(store_url, ran.register, **settings) as fleet:
        await fleet.join(lease_s=1.0, slots_async=20)
        lost = fleet.peers[0]
        await enqueue(lost, range(-20, 0))
        await until(lambda: len(ran.by) == 20)
        live = await fleet.join(lease_s=1.0)
        await fleet.until_shared()

        lost.cut_off()
        loop = asyncio.get_running_loop()
        cut_at = loop.time()
        await until(lambda: len(live.heard.all(TaskResumed)) == 20)
        resumed_s = loop.time() - cut_at
        await until(lambda: len(ran.by) == 40)
        lost.back()
        await fleet.until_shared()  # it gets a share again, under new epochs
        ran.gate.set()
        await fleet.until_drained()

        assert 0.7 <= resumed_s <= 1.0 + 0.2 + 1.0, "lease, beat, and a second"
        assert ran.counts == Counter({number: 2 for number in range(-20, 0)})
        store = live.store.real
        assert (await store.counts())[State.DONE] == 20
        assert len(lost.heard.all(SettleRefused)) + len(live.heard.all(SettleRefused)) <= 20


async def test_two_nodes_with_different_views_of_the_members_never_flap(store_url):
    """For a while the second does not see the third: no partition is handed to and fro."""
    ran = Ran()
    async with Fleet(store_url, ran.register, limits=QUICK, tick_s=0.05, lease_s=60.0) as fleet:
        first, second = await fleet.join(), await fleet.join()
        await fleet.until_shared()
        hidden: set[str] = set()
        real = second.store.real.look

        async def look(queues):
            found = await real(queues)
            seen = [one for one in found.members if not hidden or one.node in hidden]
            return found._replace(members=seen)

        second.store.real.look = look  # type: ignore[method-assign]
        hidden |= {first.node.id, second.node.id}
        third = await fleet.join()
        beats = second.store.calls["look"]
        await until(lambda: second.store.calls["look"] > beats + 10)
        taken = [len(peer.heard.all(PartitionTaken)) for peer in fleet.peers]
        beats = second.store.calls["look"]
        await until(lambda: second.store.calls["look"] > beats + 10)

        assert [len(peer.heard.all(PartitionTaken)) for peer in fleet.peers] == taken
        hidden.clear()
        await fleet.until_shared()
        assert len(third.heard.all(PartitionTaken)) > 0


@pytest.mark.req("TASK-25")
async def test_a_node_that_does_not_own_the_partition_may_try_the_grab(store_url):
    """The owner is cut off but its lease lives, so only the other one can be it."""
    ran = Ran()
    settings = {"limits": QUICK, "tick_s": 0.2, "lease_s": 60.0}
    async with Fleet(store_url, ran.register, **settings) as fleet:
        owner, other = await fleet.join(), await fleet.join()
        await fleet.until_shared()
        owner.cut_off()
        await enqueue(other, range(64))
        rest = await left_to(fleet, owner, of=64)
        await until(lambda: len(ran.by) == 64 - len(rest))

        other.bus.publish([anyone(task) for task in rest])
        await until(lambda: len(ran.by) == 64)
        owner.back()
        await fleet.until_drained()

        assert set((await fleet.owners()).values()) == {"a", "b"}
        assert ran.counts == Counter(range(64))
        assert ran.names() == {"b"}


@pytest.mark.req("TASK-25")
async def test_a_task_with_an_ordering_key_is_not_grabbed_by_a_node_that_does_not_own_it(store_url):
    ran = Ran()
    settings = {"limits": QUICK, "tick_s": 0.2, "lease_s": 60.0}
    async with Fleet(store_url, ran.register, **settings) as fleet:
        owner, other = await fleet.join(), await fleet.join()
        await fleet.until_shared()
        owner.cut_off()
        count = other.tasks["count"]
        numbers = {
            (await count.options(ordering_key=f"key {number}").enqueue(number)).id: number
            for number in range(20)
        }
        rest = await left_to(fleet, owner, of=20)
        await until(lambda: len(ran.by) == 20 - len(rest))
        other.bus.publish([anyone(task) for task in rest])
        await enqueue(other, range(100, 164))  # behind them, on the same bus
        after = await left_to(fleet, owner, of=84)
        await until(lambda: len(ran.by) == 84 - len(after))

        states = await other.store.real.get([task.id for task in rest])
        assert 0 < len(rest) < 20
        assert {task.state for task in states.values()} == {State.SUBMITTED}
        owner.back()
        await fleet.until_drained()
        assert {n for name, n in ran.by if name == "a"} >= {numbers[id] for id in states}


@pytest.mark.req("TASK-25")
async def test_a_task_with_an_ordering_key_is_grabbed_by_the_owner_of_its_partition_only(store_url):
    ran = Ran()
    async with Fleet(store_url, ran.register, limits=QUICK, tick_s=0.2) as fleet:
        first, second = await fleet.join(), await fleet.join()
        await fleet.until_shared()
        owners = await fleet.owners()
        ordered = {
            key: await first.tasks["count"].options(ordering_key=f"key {key}").enqueue(key)
            for key in range(40)
        }
        await fleet.until_drained()

        store = second.store.real
        tasks = await store.get([handle.id for handle in ordered.values()])
        by = {number: name for name, number in ran.by}
        assert {key: by[key] for key in ordered} == {
            key: owners[tasks[handle.id].partition] for key, handle in ordered.items()
        }
        assert set(by.values()) == {"a", "b"}


async def test_kinds_that_only_some_nodes_handle_run_there_whoever_owns_their_partition(
    postgres_url,
):
    """As in a rolling deploy: more of them wait than fit into one notification."""
    ran: Counter[str] = Counter()

    def register(app: Holdfast, name: str) -> dict[str, Any]:
        @app.task
        async def shared() -> None:
            ran[f"{name} shared"] += 1

        if name == "a":
            return {"shared": shared}

        @app.task
        async def rare() -> None:
            ran[f"{name} rare"] += 1

        return {"shared": shared, "rare": rare}

    async with Fleet(postgres_url, register, limits=QUICK, tick_s=0.1) as fleet:
        _, second = await fleet.join(), await fleet.join()
        await fleet.until_shared()

        await second.tasks["rare"].enqueue_many([() for _ in range(1_500)])
        await second.tasks["shared"].enqueue_many([() for _ in range(64)])
        await fleet.until_drained(10)

        assert ran["b rare"] == 1_500
        assert ran["a shared"] + ran["b shared"] == 64
        assert ran["a shared"] > 0
