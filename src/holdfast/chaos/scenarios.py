"""Nine scenarios of a minute: does the rate come back?

The same load comes in all the time.  What ends in a second is counted before a fault, while it
lasts, and after it; 100 % is the rate before, and 97 % of it passes.

    faults    restart · backends killed · pool exhausted · a node lost · nodes killed one by one
    pressure  idle in transaction · threefold load · readers · a burst
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass

from holdfast.bench.bare import connected
from holdfast.chaos.cluster import Cluster, cluster, terminate_backends
from holdfast.clock import SystemClock

NODES = 3
PER_SECOND = 150.0
CALM_S = 10.0  # from the start of the load to the first count
WINDOW_S = 15.0  # of each count
FAULT_S = 15.0
SETTLE_S = 5.0  # from the end of a fault to the count after it
PASSES = 0.97
BURST_TASKS = 5_000
READERS = 4
CONNECTIONS_LEFT = 12  # of the server's, while its pool is exhausted


@dataclass(frozen=True, slots=True)
class Verdict:
    """Tasks that ended in a second."""

    name: str
    before: float
    during: float
    after: float

    @property
    def share(self) -> float:
        return self.after / self.before if self.before else 0.0

    @property
    def is_passed(self) -> bool:
        return self.share >= PASSES

    def __str__(self) -> str:
        word = "passed" if self.is_passed else "FAILED"
        return (
            f"{self.name:22} {self.before:6.0f}/s before, {self.during:6.0f}/s during, "
            f"{self.after:6.0f}/s after: {self.share:4.0%} {word}"
        )


class Stage:
    """What happens to a cluster, and what is counted meanwhile."""

    def __init__(self, cluster: Cluster) -> None:
        self.server = cluster.server
        self.place = cluster.place
        self.workers = cluster.workers
        self.load = cluster.load

    # ── faults ────────────────────────────────────────────────────────────────────────────

    async def restart(self) -> None:
        await asyncio.to_thread(self.server.restart)

    async def kill_backends(self) -> None:
        for _ in range(int(FAULT_S)):
            await terminate_backends(self.server)
            await asyncio.sleep(1)

    async def exhaust_pool(self) -> None:
        """Somebody else takes nearly all connections of the server."""
        (limit,) = self.server.execute("SHOW max_connections")
        async with AsyncExitStack() as taken:
            with suppress(Exception):  # the server refuses one more: that is what is wanted
                for _ in range(int(limit) - CONNECTIONS_LEFT):
                    await taken.enter_async_context(connected(self.place.url))
            await asyncio.sleep(FAULT_S)

    async def lose_a_node(self) -> None:
        self.workers.end(self.workers.alive[0], whole_machine=True)
        await asyncio.sleep(FAULT_S)
        await self.workers.start()

    async def kill_one_by_one(self) -> None:
        clock = SystemClock()
        until_s = clock.seconds() + FAULT_S
        while clock.seconds() < until_s:
            self.workers.end(self.workers.alive[0])
            await self.workers.start()

    # ── pressure ──────────────────────────────────────────────────────────────────────────

    async def idle_in_transaction(self) -> None:
        async with connected(self.place.url) as connection:
            await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            await connection.execute("SELECT pg_current_xact_id()")
            await asyncio.sleep(FAULT_S)
            await connection.execute("ROLLBACK")

    async def high_load(self) -> None:
        self.load.per_second *= 3
        await asyncio.sleep(FAULT_S)
        self.load.per_second /= 3

    async def readers(self) -> None:
        async def read() -> None:
            schema = self.place.schema
            async with connected(self.place.url) as connection:
                while True:
                    for table in ("task", "archive"):
                        await connection.fetch(f"SELECT count(*), max(id) FROM {schema}.{table}")

        reading = [asyncio.create_task(read()) for _ in range(READERS)]
        await asyncio.sleep(FAULT_S)
        for reader in reading:
            reader.cancel()
        await asyncio.gather(*reading, return_exceptions=True)

    async def burst(self) -> None:
        await self.load.burst(BURST_TASKS)
        await asyncio.sleep(FAULT_S)

    # ── the count ─────────────────────────────────────────────────────────────────────────

    async def rate_over(self, during: Awaitable[None]) -> float:
        """Tasks that ended in a second while something was going on."""
        clock = SystemClock()
        self.workers.look()
        since_s = clock.seconds()
        await during
        took_s = clock.seconds() - since_s
        return sum(line.what == "end" for line in self.workers.look()) / took_s


SCENARIOS: dict[str, Callable[[Stage], Awaitable[None]]] = {
    "PostgreSQL restart": Stage.restart,
    "backend kill": Stage.kill_backends,
    "pool exhaustion": Stage.exhaust_pool,
    "crash recovery": Stage.lose_a_node,
    "repeated kills": Stage.kill_one_by_one,
    "idle in transaction": Stage.idle_in_transaction,
    "high load": Stage.high_load,
    "active readers": Stage.readers,
    "burst": Stage.burst,
}


async def played(name: str) -> Verdict:
    """One scenario, on a server of its own."""
    async with cluster(NODES, PER_SECOND) as there:
        stage = Stage(there)
        await asyncio.sleep(CALM_S)
        before = await stage.rate_over(asyncio.sleep(WINDOW_S))
        during = await stage.rate_over(SCENARIOS[name](stage))
        await asyncio.sleep(SETTLE_S)
        after = await stage.rate_over(asyncio.sleep(WINDOW_S))
    return Verdict(name, before, during, after)


def main(names: list[str]) -> int:
    verdicts = []
    for name in names or SCENARIOS:
        verdicts.append(asyncio.run(played(name)))
        sys.stdout.write(f"{verdicts[-1]}\n")
        sys.stdout.flush()
    passed = sum(verdict.is_passed for verdict in verdicts)
    sys.stdout.write(f"scenarios passed {passed}/{len(verdicts)}\n")
    return 0 if passed == len(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
