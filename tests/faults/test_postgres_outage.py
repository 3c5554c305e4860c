"""The server dies, restarts, or ends our connections while a node works: work goes on by itself."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from holdfast import Holdfast, State
from holdfast.clock import SystemClock
from holdfast.node.node import Node
from holdfast.store import Filter
from holdfast.testing.apps import opened
from holdfast.testing.postgres import PrivateServer
from holdfast.testing.recorder import Recorder

TASKS = 3_000
SLOTS = 50
RECOVERY_S_MAX = 10.0
"""From the moment the server answers again to the next outcome recorded: the longest back-off of
the engine is 5 s, and a try that begins just before the server is there is lost."""


class Drain:
    """A node that drains 3,000 tasks of a few milliseconds; what its handlers saw, and when."""

    def __init__(self, url: str) -> None:
        self.app = Holdfast(url, rng=Random(1))
        self.starts: Counter[int] = Counter()
        self.times: list[float] = []
        self._clock = SystemClock()

        @self.app.task(deadline=3600)
        async def work(number: int) -> int:
            self.starts[number] += 1
            self.times.append(self._clock.seconds())
            await asyncio.sleep(0.02)
            return number

        self.work = work

    async def started(self, count: int) -> None:
        async with asyncio.timeout(60):
            while sum(self.starts.values()) < count:
                await asyncio.sleep(0.002)

    async def drained(self) -> None:
        store = await self.app.store()
        unfinished = (State.WAITING, State.SUBMITTED, State.PROCESSING)
        async with asyncio.timeout(90):
            while await store.find(Filter(states=unfinished, limit=1)):
                await asyncio.sleep(0.05)

    def rate(self, since: float, window_s: float = 0.5) -> float:
        """Starts a second in the window that begins then."""
        return sum(since <= time < since + window_s for time in self.times) / window_s

    def recovery_s(self, broken_at: float, back_at: float) -> float:
        """From the moment the server was back until starts came at four fifths of the old rate."""
        before = self.rate(max(self.times[0], broken_at - 0.5), broken_at - max(self.times[0], broken_at - 0.5))
        for time in self.times:
            if time > back_at and self.rate(time) >= 0.8 * before:
                return time - back_at
        return self.times[-1] - back_at


async def killed(server: PrivateServer) -> None:
    await asyncio.to_thread(server.kill9)
    await asyncio.sleep(1.0)  # the outage itself: as long as the test says, not a wait for anything
    await asyncio.to_thread(server.start)


async def restarted(server: PrivateServer) -> None:
    await asyncio.to_thread(server.restart)


async def terminated(server: PrivateServer) -> None:
    """End every connection of Holdfast three times, whatever it is doing."""
    for _ in range(3):
        await asyncio.to_thread(
            server.execute,
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
            "WHERE application_name LIKE 'holdfast%'",
        )
        await asyncio.sleep(0.05)


@pytest.mark.store("postgres")
@pytest.mark.req("TASK-89")
@pytest.mark.parametrize("outage", [killed, restarted, terminated], ids=lambda one: one.__name__)
async def test_work_goes_on_by_itself_and_nothing_is_lost_or_run_twice(
    private_postgres: PrivateServer,
    outage: Callable[[PrivateServer], Awaitable[None]],
    record_property: Callable[[str, object], None],
):
    url = private_postgres.create_database("app")
    drain, clock = Drain(url), SystemClock()
    async with opened(drain.app):
        handles = await drain.work.enqueue_many([(n,) for n in range(TASKS)])
        async with drain.app.node(slots_async=SLOTS) as node:
            await drain.started(TASKS // 4)
            broken_at = clock.seconds()
            await outage(private_postgres)
            back_at = clock.seconds()
            left = TASKS - sum(drain.starts.values())
            await drain.drained()
            record_property("recovery_s", round(drain.recovery_s(broken_at, back_at), 2))
            print(outage.__name__, "left", left, "recovery", drain.recovery_s(broken_at, back_at), "outage", back_at-broken_at, "total after", clock.seconds()-back_at)

            await node.drained(10)
            tasks = await (await drain.app.store()).get([handle.id for handle in handles])
            assert {task.state for task in tasks.values()} == {State.DONE}
            assert sorted(drain.starts.elements()) == list(range(TASKS))
            assert left > TASKS // 4
            assert drain.recovery_s(broken_at, back_at) < RECOVERY_S_MAX
            assert node.in_flight == 0
