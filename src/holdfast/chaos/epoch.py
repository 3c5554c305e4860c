"""An epoch: a minute of faults on an empty store, then rest, then the verdict of the checkers."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from random import Random

from holdfast.bench.ground import Place
from holdfast.bench.recovery import drained
from holdfast.bench.workers import Worker, Workers
from holdfast.chaos import witness
from holdfast.chaos.cluster import terminate_backends
from holdfast.chaos.disk import SmallDisk
from holdfast.chaos.load import Load
from holdfast.chaos.proxy import Proxy
from holdfast.clock import SystemClock
from holdfast.errors import HoldfastError, StoreUnavailable
from holdfast.store import Store
from holdfast.testing.postgres import PrivateServer
from holdfast.verify.checkers import Violation, verify
from holdfast.verify.history import Line

NODES = 4
SERVING_MIN = 2
LEASE_S = 2.0  # the stall limit as well
SETTINGS = {
    "HOLDFAST_NODE__LEASE": f"{LEASE_S:g}s",
    "HOLDFAST_NODE__STALL_LIMIT": f"{LEASE_S:g}s",
    "HOLDFAST_NODE__DELIVERIES_MAX": "1000",  # whoever is always unlucky is not parked here
    "HOLDFAST_NODE__SLOTS__SUSPECTS": "8",  # some tasks run for seconds, and a killed node has many
}
LOST_S_MAX = 20.0  # for a lease to be lost, or to be had again
REST_S_MAX = 60.0  # for everything to come to rest after the last fault
CUT_S = 3.0  # of a network that carries nothing: longer than a lease
FULL_S, FULL_LOOKS = 4.0, 20  # of a disk without room, and how often that is made sure of
FULL_RATE = 0.97
RATE_WINDOW_S = 1.0
RECOVERY_S_MAX = 60.0
SUPERVISED_S = 0.1  # before a worker that could not start is started again


@dataclass(slots=True)
class Tally:
    """What was done, and what came of it."""

    faults: Counter[str] = field(default_factory=Counter)
    tasks: int = 0
    attempts: int = 0
    lost: int = 0
    doubled: int = 0
    restarts_s: list[float] = field(default_factory=list)  # until the full rate was back
    violations: list[Violation] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.faults += other.faults
        self.tasks += other.tasks
        self.attempts += other.attempts
        self.lost += other.lost
        self.doubled += other.doubled
        self.restarts_s += other.restarts_s
        self.violations += other.violations


Fault = Callable[[], Awaitable[None]]


class Epoch:
    """One cluster under faults."""

    def __init__(
        self, place: Place, store: Store, workers: Workers, load: Load, rng: Random
    ) -> None:
        self.place = place
        self.store = store
        self.workers = workers
        self.load = load
        self.rng = rng
        self.tally = Tally()
        self.history: list[Line] = []
        self._nodes: dict[int, str] = {}  # by the pid of the worker
        self._environ: dict[str, str] = dict(SETTINGS)
        self._server: PrivateServer | None = None
        self._proxy: Proxy | None = None
        self._disk: SmallDisk | None = None
        self._starting: set[asyncio.Task[Worker]] = set()

    def on(self, server: PrivateServer, proxy: Proxy, url: str) -> None:
        """The server can be killed, and its network cut; the workers know only the proxy."""
        self._server, self._proxy = server, proxy
        self._environ["HOLDFAST_URL"] = url

    def on_disk(self, disk: SmallDisk) -> None:
        """The store lies on a disk that can be filled."""
        self._disk = disk

    @property
    def faults(self) -> dict[str, tuple[int, Fault]]:
        """What can be done here, and how often."""
        found: dict[str, tuple[int, Fault]] = {
            "node kills": (20, self.kill),
            "pauses": (6, self.pause),
        }
        if self._server is not None:
            found |= {
                "postmaster kills": (2, self.kill_server),
                "backend kills": (1, self.kill_backends),
                "blackholes": (1, self.cut_network),
            }
        if self._disk is not None:
            found["full disks"] = (1, self.fill_disk)
        return found

    async def begin(self) -> None:
        await witness.install(self.place)
        await asyncio.gather(*(self._start() for _ in range(NODES)))

    async def suffer(self, seconds: float, only: Sequence[str] = ()) -> None:
        """Faults, one after the other, chosen by the seed."""
        clock = SystemClock()
        until_s = clock.seconds() + seconds
        chosen = {name: one for name, one in self.faults.items() if not only or name in only}
        weights = [weight for weight, _ in chosen.values()]
        while clock.seconds() < until_s:
            ((_, fault),) = self.rng.choices(list(chosen.values()), weights)
            await fault()

    async def end(self) -> Tally:
        """Let everything come to rest, and judge."""
        await self.load.stop()
        await asyncio.gather(*self._starting)
        await drained(self.store, REST_S_MAX)
        self.history = await self._told()
        tally = self.tally
        tally.violations += verify(self.history)
        tally.tasks = self.load.count
        tally.attempts = sum(line["op"] == "start" for line in self.history)
        tally.lost = sum(one.checker.startswith("C1 ") for one in tally.violations)
        tally.doubled = sum(one.checker.startswith("C3 ") for one in tally.violations)
        return tally

    # ── what is done ──────────────────────────────────────────────────────────────────────

    async def kill(self) -> None:
        """A node that runs something dies, its renewer with it or not; another one comes."""
        victim = await self._victim()
        if not await self._held(victim):
            return
        self.workers.end(victim, whole_machine=self.rng.random() < 0.5)
        self.tally.faults["node kills"] += 1
        await victim.process.wait()
        start = asyncio.create_task(self._start())
        self._starting.add(start)
        start.add_done_callback(self._starting.discard)

    async def pause(self) -> None:
        """A node that runs something stands still until its lease is lost, then goes on."""
        victim = await self._victim()
        if not await self._held(victim):
            return
        pids = [victim.pid]
        if self.rng.random() < 0.5 and victim.renewer_pid is not None:
            pids.append(victim.renewer_pid)
        self._signal(pids, signal.SIGSTOP)
        try:
            is_lost = await self._until(lambda: self._lives(victim, False), LOST_S_MAX)
        finally:
            self._signal(pids, signal.SIGCONT)
        self.tally.faults["pauses"] += is_lost
        if not await self._until(lambda: self._lives(victim, True), LOST_S_MAX):
            self.tally.violations.append(
                Violation("chaos", f"node {victim.node} did not come back after a pause")
            )

    async def kill_server(self) -> None:
        """The postmaster is killed and started again; the rate has to come back."""
        assert self._server is not None
        before = self.load.per_second
        await asyncio.to_thread(self._server.kill9)
        await asyncio.to_thread(self._server.start)
        self.tally.faults["postmaster kills"] += 1
        self.tally.restarts_s.append(await self._recovery_s(before))

    async def kill_backends(self) -> None:
        assert self._server is not None
        await terminate_backends(self._server)
        self.tally.faults["backend kills"] += 1
        await asyncio.sleep(1)

    async def cut_network(self) -> None:
        """For longer than a lease, nothing that a worker sends arrives, or no reply does."""
        assert self._proxy is not None
        self._proxy.set(self.rng.choice(("blackhole", "deaf")))
        await asyncio.sleep(CUT_S)
        self._proxy.set("open")
        self.tally.faults["blackholes"] += 1
        await asyncio.sleep(1)

    async def fill_disk(self) -> None:
        """No room on the disk for a while; a server that gave up is started again.

        It counts when the store refused somebody for it.
        """
        disk, server, before = self._disk, self._server, self.load.per_second
        assert disk is not None
        refused = self.load.refused
        for _ in range(FULL_LOOKS):
            await asyncio.to_thread(disk.fill)
            await asyncio.sleep(FULL_S / FULL_LOOKS)
        disk.free()
        if server is not None and server.is_down:
            await asyncio.to_thread(server.restart)
        self.tally.faults["full disks"] += self.load.refused > refused
        self.tally.restarts_s.append(await self._recovery_s(before))

    # ── what is seen ──────────────────────────────────────────────────────────────────────

    async def _start(self) -> Worker:
        """As a supervisor would: a worker that cannot reach the store is started again."""
        while True:
            try:
                worker = await self.workers.start(environ=self._environ)
                break
            except StoreUnavailable:
                await asyncio.sleep(SUPERVISED_S)
        assert worker.node is not None, "a worker that has started has a node"
        self._nodes[worker.pid] = worker.node
        return worker

    async def _victim(self) -> Worker:
        """One of those that serve; there are always two."""
        while True:
            serving = [worker for worker in self.workers.alive if worker.is_member]
            if len(serving) >= SERVING_MIN:
                return self.rng.choice(serving)
            await asyncio.wait(self._starting, return_when=asyncio.FIRST_COMPLETED)

    async def _held(self, worker: Worker) -> int:
        assert worker.node is not None
        with suppress(HoldfastError):
            for _ in range(20):
                if held := await self.store.running_of(worker.node):
                    return len(held)
                await asyncio.sleep(0.02)
        return 0

    async def _lives(self, worker: Worker, should: bool) -> bool:
        """Whether the store takes the worker's process for alive, as it should.

        A node that was taken for dead registers again, under the same id.
        """
        found = {member.node: member.is_alive for member in await self.store.members()}
        assert worker.node is not None
        return found.get(worker.node, False) is should

    async def _until(self, is_so: Callable[[], Awaitable[bool]], within_s: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while True:
                    with suppress(HoldfastError):
                        if await is_so():
                            return True
                    await asyncio.sleep(0.02)
        return False

    async def _recovery_s(self, per_second: float) -> float:
        """How long it takes until as many tasks end in a second as come in."""
        clock = SystemClock()
        since_s = clock.seconds()
        ended: list[float] = []
        while clock.seconds() - since_s < RECOVERY_S_MAX:
            await asyncio.sleep(0.05)
            ended += [line.at_s for line in self.workers.look() if line.what == "end"]
            now_s = clock.seconds()
            ended = [at_s for at_s in ended if at_s > now_s - RATE_WINDOW_S]
            if now_s - since_s > RATE_WINDOW_S and len(ended) >= FULL_RATE * per_second:
                return now_s - since_s - RATE_WINDOW_S
        return RECOVERY_S_MAX

    def _signal(self, pids: Sequence[int], number: signal.Signals) -> None:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    async def _told(self) -> list[Line]:
        self.workers.look()
        offset_s = self.load.offset_s
        lines = [*self.load.lines, *witness.told(await witness.seen(self.place))]
        for line in self.workers.lines:
            node = self._nodes.get(line.pid) or self._nodes.get(line.parent)
            lines.append(
                {
                    "t": line.at_s + offset_s,
                    "op": line.what,
                    "task": line.task,
                    "version": line.version,
                    "node": node,
                }
            )
        return sorted(lines, key=lambda line: line["t"])


@asynccontextmanager
async def epoch(place: Place, rng: Random, *, per_second: float) -> AsyncIterator[Epoch]:
    """A cluster on an empty store; its workers are gone after the block."""
    async with (
        place.store() as store,
        Workers(place, store) as workers,
        Load(place, rng, per_second) as load,
    ):
        yield Epoch(place, store, workers, load, rng)
