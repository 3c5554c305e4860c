"""The server dies, restarts, or ends our connections while nodes work: work goes on by itself."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random

import pytest

from conditions import until
from holdfast import Holdfast, State
from holdfast.clock import SystemClock
from holdfast.errors import Unavailable
from holdfast.store import Filter
from holdfast.telemetry.events import StoreFailed
from holdfast.testing.apps import opened
from holdfast.testing.postgres import PrivateServer

TASKS = 3_000
SLOTS = 50
CONNECTIONS_MAX = 8 + 8 + 2  # engine, handlers and searches, the bus
RECOVERY_S_MAX = 5.0  # the longest back-off of the engine
PATIENCE_S = 60.0
WINDOW_S = 0.25
OURS = "FROM pg_stat_activity WHERE application_name LIKE 'holdfast%' AND datname = 'app'"

pytestmark = pytest.mark.store("postgres")


class Drain:
    """An app whose handler takes 20 ms; what it saw, when, and how often the store failed."""

    def __init__(self, server: PrivateServer, seed: int = 1) -> None:
        self.server = server
        self.app = Holdfast(server.url("app"), rng=Random(seed))
        self.starts: Counter[int] = Counter()
        self.times: list[float] = []
        self.failures = 0
        self.clock = SystemClock()
        self.app.events.listen(self._heard)

        @self.app.task
        async def work(number: int) -> int:
            self.starts[number] += 1
            self.times.append(self.clock.seconds())
            await asyncio.sleep(0.02)
            return number

        self.work = work

    async def drained(self) -> None:
        store = await self.app.store()
        unfinished = (State.WAITING, State.SUBMITTED, State.PROCESSING)
        is_empty = False
        async with asyncio.timeout(PATIENCE_S):
            while not is_empty:
                with suppress(Unavailable):  # our own look is no part of the promise
                    is_empty = not await store.find(Filter(states=unfinished, limit=1))
                await asyncio.sleep(0.05)

    def recovery_s(self, broken_at: float, back_at: float) -> float:
        """From the server's return until starts come at four fifths of the rate of before."""
        before = self._rate(max(self.times[0], broken_at - WINDOW_S), broken_at)
        for time in self.times[bisect_left(self.times, back_at) :]:
            if self._rate(time, min(time + WINDOW_S, self.times[-1])) >= 0.8 * before:
                return time - back_at
        return self.times[-1] - back_at

    def connections(self) -> int:
        return int(self.server.execute(f"SELECT count(*) {OURS}")[0])

    def _rate(self, since: float, to: float) -> float:
        starts = bisect_left(self.times, to) - bisect_left(self.times, since)
        return starts / max(to - since, 0.001)

    def _heard(self, event: object) -> None:
        self.failures += isinstance(event, StoreFailed)


async def killed(drain: Drain) -> None:
    """A power cut; the server is back once the node has failed at it several times."""
    await asyncio.to_thread(drain.server.kill9)
    await until(lambda: drain.failures >= 5, PATIENCE_S)
    await asyncio.to_thread(drain.server.start)


async def restarted(drain: Drain) -> None:
    await asyncio.to_thread(drain.server.restart)


async def terminated(drain: Drain) -> None:
    """Every connection is ended, three times, whatever it is doing."""
    for _ in range(3):
        before = len(drain.times)
        ended = f"SELECT count(pg_terminate_backend(pid)) {OURS}"
        await asyncio.to_thread(drain.server.execute, ended)
        await until(lambda before=before: len(drain.times) > before + 100, PATIENCE_S)


async def crashed(drain: Drain) -> None:
    """One backend of ours dies: the server ends all others and recovers by itself."""
    (pid, *_) = await asyncio.to_thread(drain.server.execute, f"SELECT pid {OURS}")
    failures = drain.failures
    os.kill(int(pid), signal.SIGKILL)
    await until(lambda: drain.failures > failures, PATIENCE_S)


OUTAGES = [killed, restarted, terminated, crashed]


@pytest.mark.req("TASK-89")
@pytest.mark.parametrize("outage", OUTAGES, ids=lambda one: one.__name__)
async def test_work_goes_on_by_itself_and_nothing_is_lost_or_run_twice(
    private_postgres: PrivateServer, outage: Callable[[Drain], Awaitable[None]]
):
    private_postgres.create_database("app")
    drain = Drain(private_postgres)
    async with opened(drain.app):
        handles = await drain.work.enqueue_many([(n,) for n in range(TASKS)])
        async with drain.app.node(slots_async=SLOTS) as node:
            await until(lambda: len(drain.times) >= TASKS // 4, PATIENCE_S)
            broken_at = drain.clock.seconds()
            await outage(drain)
            back_at, left = drain.clock.seconds(), TASKS - len(drain.times)
            await drain.drained()
            await node.drained(PATIENCE_S)

            tasks = await (await drain.app.store()).get([handle.id for handle in handles])
            recovery_s = drain.recovery_s(broken_at, back_at)
            sys.stdout.write(f"\n{outage.__name__}: full rate again after {recovery_s:.2f} s\n")
            assert left > TASKS // 4
            assert Counter(task.state for task in tasks.values()) == {State.DONE: TASKS}
            assert drain.starts == Counter(range(TASKS))
            assert recovery_s < RECOVERY_S_MAX
            assert node.in_flight == 0
            assert drain.connections() <= CONNECTIONS_MAX
    await until(lambda: drain.connections() == 0)


@pytest.mark.req("TASK-89")
async def test_an_outage_longer_than_a_lease_makes_no_node_take_from_another(private_postgres):
    private_postgres.create_database("app")
    one, two = Drain(private_postgres), Drain(private_postgres, seed=2)
    lease_s = 1.0
    settings = {"slots_async": SLOTS, "lease_s": lease_s, "tick_s": 0.2}
    async with (
        opened(one.app),
        opened(two.app),
        one.app.node(**settings),
        two.app.node(**settings),
    ):
        await one.work.enqueue_many([(n,) for n in range(TASKS)])
        await until(lambda: min(len(one.times), len(two.times)) >= 200, PATIENCE_S)
        await asyncio.to_thread(private_postgres.stop)
        down_at = one.clock.seconds()
        await until(lambda: one.clock.seconds() - down_at > 2 * lease_s)
        await asyncio.to_thread(private_postgres.start)
        await one.drained()

        assert min(one.failures, two.failures) > 0
        assert one.starts + two.starts == Counter(range(TASKS))
        counts = await (await one.app.store()).counts()
        assert {state: count for state, count in counts.items() if count} == {State.DONE: TASKS}
    await until(lambda: one.connections() == 0)
