"""A queue or one partition of it, paused and resumed while nodes run."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from conditions import until
from holdfast.errors import ConfigurationError
from holdfast.store import Filter
from holdfast.task import State

PAUSED = 3


class Ran:
    """How many tasks have run, by the partition they stand in."""

    def __init__(self, app) -> None:
        self.ids: list[int] = []

        @app.task(queue="pay")
        async def payout(number: int) -> None:
            self.ids.append(number)

        self.task = payout
        self.sent = 0

    async def send(self, app, count: int) -> Counter[int]:
        """Enqueue tasks; answers how many of them stand in each partition."""
        calls = [(self.sent + n,) for n in range(count)]
        self.sent += count
        handles = await self.task.enqueue_many(calls)
        found = await (await app.store()).get([handle.id for handle in handles])
        return Counter(task.partition for task in found.values())


async def left_in(app) -> Counter[int]:
    """What is SUBMITTED, by partition."""
    found = await (await app.store()).find(Filter(states=[State.SUBMITTED], limit=10_000))
    return Counter(task.partition for task in found)


@pytest.mark.req("TASK-87")
async def test_a_paused_partition_starts_nothing_others_go_on_and_resumed_it_all_runs(app):
    ran = Ran(app)
    queue = app.queue("pay")

    async with app.node(queues=["pay"], tick_s=0.1) as node:
        await ran.send(app, 64)
        await node.drained(10)
        await queue.pause(partition=PAUSED)
        await asyncio.sleep(1.0)  # a change reaches the nodes within a second
        for _ in range(3):
            there = await ran.send(app, 64)
            assert there[PAUSED] > 0
        held = 3 * there[PAUSED]
        await until(lambda: len(ran.ids) == 256 - held, 10)
        await asyncio.sleep(0.5)  # time enough for what must not happen

        assert len(ran.ids) == 256 - held
        assert await left_in(app) == {PAUSED: held}
        await queue.resume(partition=PAUSED)
        await until(lambda: len(ran.ids) == 256, 5)
        await node.drained(10)

    assert sorted(ran.ids) == list(range(256)), "each once"


@pytest.mark.req("TASK-87")
async def test_a_queue_is_paused_and_resumed_while_its_node_runs(app):
    ran = Ran(app)
    queue = app.queue("pay")

    async with app.node(queues=["pay"]) as node:
        await ran.send(app, 20)
        await node.drained(10)
        await queue.pause()
        await asyncio.sleep(1.0)  # a change reaches the nodes within a second
        await ran.send(app, 20)
        await asyncio.sleep(0.5)
        assert len(ran.ids) == 20
        await queue.resume()
        await until(lambda: len(ran.ids) == 40, 3)
        await node.drained(10)


async def test_a_pause_outlives_its_node_and_another_owner_keeps_it(make_app):
    first = await make_app()
    ran = Ran(first)
    there = await ran.send(first, 64)
    await first.queue("pay").pause(partition=PAUSED)

    for _ in range(2):
        async with first.node(queues=["pay"], tick_s=0.1) as node:
            await until(lambda: len(ran.ids) == 64 - there[PAUSED], 10)
            await asyncio.sleep(0.3)
            assert node.is_idle

    assert await left_in(first) == {PAUSED: there[PAUSED]}
    async with first.node(queues=["pay"], tick_s=0.1) as node:
        await first.queue("pay").resume(partition=PAUSED)
        await node.drained(10)
    assert len(ran.ids) == 64


async def test_a_partition_that_does_not_exist_or_a_part_of_one_is_refused(app):
    queue = app.queue("pay")

    with pytest.raises(ConfigurationError, match="has the partitions 0 to"):
        await queue.pause(partition=99)
    with pytest.raises(ConfigurationError, match="paused as a whole"):
        await queue.pause(partition=1, kind="payout")

    assert (await queue.rules()).limits == []
