"""One seed: a cluster lives under faults, then without, and its history is judged.

faults ──▶ safety checked ──▶ healed ──▶ everything comes to rest ──▶ all checked, nodes leave
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass
from random import Random
from typing import Any

from holdfast.errors import HoldfastError, Unavailable
from holdfast.node.node import Node
from holdfast.simulation.callers import Callers
from holdfast.simulation.children import simulated_children
from holdfast.simulation.people import People
from holdfast.simulation.plan import Plan, drawn
from holdfast.simulation.processes import NodeProgram, Place
from holdfast.simulation.workload import Users
from holdfast.simulation.world import SeededWorld
from holdfast.telemetry.logs import LOGGER
from holdfast.testing.simulate import Deadlock
from holdfast.verify.checkers import Violation, verify
from holdfast.verify.history import Line

STILL_S_MAX = 40.0  # after the faults something moves at least so often, until all are at rest
REST_S_MAX = 300.0  # and after this all are, or something goes round in circles
LEAVE_S_MAX = 30.0
LOOK_S = 0.5
TOLD_SHARE = 0.5  # of the killed processes have a renewer that tells of it
WILD_EVERY_S = 6.0  # on average, of what habits do to nodes
SUSPENDED_S = 650.0
DRAIN_S_MAX = 10.0


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a seed."""

    plan: Plan
    violations: Sequence[Violation]
    history: Sequence[Line]
    seconds: float  # of the world

    @property
    def counts(self) -> Counter[str]:
        """How often what was done to the cluster, and what it did."""
        found = Counter(line["op"] for line in self.history)
        found.update(line["what"] for line in self.history if line["op"] == "fault")
        return found


class Cluster:
    """The nodes, and what happens to them."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._rng = Random(f"cluster {place.plan.seed}")
        self._wild = Random(f"wild cluster {place.plan.seed}")
        self._context = copy_context()  # of no process
        self._births = 0
        self.nodes = [self._born() for _ in range(place.plan.nodes)]

    def _born(self) -> NodeProgram:
        self._births += 1
        born = NodeProgram(self.place, f"node {self._births}")
        born.process.crashes = lambda: self._crashes(born)
        return born

    def _crashes(self, victim: NodeProgram) -> bool:
        """Whether a process may die of what it runs; then another one is started."""
        if self.place.faults.is_healed or victim not in self.nodes:
            return False
        self._tell("crash", victim)
        self._later(self._wild.expovariate(1.0), self.replace, victim)
        return True

    async def suffer_wildly(self) -> None:
        """What the habits of this seed do to nodes, until everything is healed."""
        plan = self.place.plan
        deeds = [self._drain] if "drains" in plan.habits else []
        if "suspension" in plan.habits and not plan.schedules and "timetables" not in plan.habits:
            deeds.append(self._suspend)
        while deeds:
            await asyncio.sleep(self._wild.expovariate(1 / WILD_EVERY_S))
            victim = self._wild.choice(self.nodes)
            if not victim.process.is_dead and not victim.process.is_stopped:
                await self._wild.choice(deeds)(victim)

    async def suffer(self) -> None:
        """Faults of nodes, until everything is healed."""
        plan = self.place.plan
        while plan.node_faults:
            await asyncio.sleep(self._rng.expovariate(1 / plan.fault_every_s))
            fault = self._rng.choice(sorted(plan.node_faults))
            victim = self._rng.choice(self.nodes)
            if victim.process.is_stopped or victim.process in self.place.faults.isolated:
                continue
            await getattr(self, f"_{fault}")(victim)

    async def heal(self) -> None:
        """Nothing goes wrong any more, and as many nodes live as at the beginning."""
        self.place.faults.heal()
        for node in self.nodes:
            if node.process.is_stopped:
                self.place.world.go_on(node.process)
        self.place.tell("healed")

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing waits or runs, in the store or in the memory of a node."""
        nodes = [program.node for program in self.nodes]
        return not self.place.truth.is_busy and all(node is None or node.is_idle for node in nodes)

    async def leave(self) -> None:
        """All nodes end gracefully, one after the other."""
        for node in self.nodes:
            node.leave()
            async with asyncio.timeout(LEAVE_S_MAX):
                await node.ended.wait()

    # ── faults ────────────────────────────────────────────────────────────────────────────

    async def _kill(self, victim: NodeProgram) -> None:
        self._tell("kill", victim)
        name, process = victim.process.node, victim.process
        process.kill()
        if self._rng.random() < TOLD_SHARE and name:
            await asyncio.sleep(self._rng.uniform(0.1, 1.0))
            await self.place.truth.end([name])  # type: ignore[list-item]
        await asyncio.sleep(self._rng.expovariate(1.0))
        self.replace(victim)

    async def _stop(self, victim: NodeProgram) -> None:
        self._tell("stop", victim)
        victim.process.is_stopped = True
        self._later(self._rng.uniform(0.2, 3.0) * self.place.plan.lease_s, self._go_on, victim)

    def _go_on(self, victim: NodeProgram) -> None:
        if victim.process.is_stopped:
            self._tell("go on", victim)
            self.place.world.go_on(victim.process)

    async def _isolate(self, victim: NodeProgram) -> None:
        self._tell("isolate", victim)
        isolated = self.place.faults.isolated
        isolated.add(victim.process)
        for_s = self._rng.uniform(0.2, 3.0) * self.place.plan.lease_s
        self._later(for_s, isolated.discard, victim.process)

    async def _leave(self, victim: NodeProgram) -> None:
        self._tell("leave", victim)
        victim.leave()
        await asyncio.sleep(self._rng.expovariate(0.5))
        self.replace(victim)

    async def _drain(self, victim: NodeProgram) -> None:
        """A person asks a node to end; its program does so once it has heard of it."""
        if victim.node is None:
            return
        self._tell("drain", victim)
        node = victim.node
        await self.place.truth.ask(node.id, "drain")
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_S_MAX):
                await node.stopping.wait()
        victim.leave()
        self.replace(victim)

    async def _suspend(self, victim: NodeProgram) -> None:
        """All machines stand still together, as when their host is suspended."""
        self._tell("suspend", victim)
        self.place.world.jump(SUSPENDED_S)

    def replace(self, victim: NodeProgram) -> None:
        """Start a new process in the place of this one, unless somebody has."""
        if victim in self.nodes:
            self.nodes[self.nodes.index(victim)] = self._born()

    def _later(self, after_s: float, call: Any, *args: Any) -> None:
        self.place.world.call_later(after_s, call, *args, context=self._context)

    def _tell(self, what: str, victim: NodeProgram) -> None:
        self.place.tell("fault", what=what, node=victim.process.name)


async def live(place: Place) -> list[Violation]:
    """The whole story of a seed; answers what it must not have done."""
    users = Users(place)
    everybody: list[Users | Callers | People] = [users]
    await place.world.start(users.process, users.set_up())
    place.truth.is_set_up = True
    place.faults.begin()
    cluster = Cluster(place)
    if place.plan.habits:
        everybody += [Callers(place), People(place, cluster.nodes)]
    using = [user.start() for user in everybody]
    suffering = [asyncio.ensure_future(cluster.suffer())]
    if place.plan.habits:
        suffering.append(asyncio.ensure_future(cluster.suffer_wildly()))
    await asyncio.sleep(place.plan.faulty_s)
    for one in suffering:
        one.cancel()
    ended = await asyncio.gather(*suffering, return_exceptions=True)
    found = [Violation("simulation", repr(one)) for one in ended if isinstance(one, Exception)]
    found += verify(place.history.lines, is_over=False)
    place.is_deployed = True
    for program in list(cluster.nodes):
        if program.is_partial:
            program.leave()
        if program.process.is_dead or program.is_leaving:
            cluster.replace(program)
    await cluster.heal()
    for one_using in using:
        await one_using
    for user in everybody:
        await place.world.start(user.process, user.tidy_up())
    await _rest(cluster, users)
    for program in cluster.nodes:
        if (node := program.node) is not None:
            shares = place.truth.shares_of(node.id)
            place.tell(
                "idle",
                node=program.process.name,
                booked=node.in_flight,
                shares=shares,
                remembered=_remembered(node),
            )
    try:
        await cluster.leave()
    except TimeoutError:
        found.append(Violation("C16 liveness", "a node does not end within 30 s"))
    return found + [one for one in verify(place.history.lines) if one not in found]


def _remembered(node: Node) -> int:
    """Tasks of which the node knows something, though it could run them."""
    intakes = [dispatcher.intake for dispatcher in node._dispatchers.values()]
    return sum(len((one.known | one.places).keys() - one.unhandled.keys()) for one in intakes)


async def _rest(cluster: Cluster, users: Users) -> None:
    """Wait until every task has come to rest and every node is idle, or until it takes too long."""
    place = cluster.place
    moves, since_s = place.truth.moves, place.world.seconds()
    until_s = since_s + REST_S_MAX
    while place.world.seconds() < min(since_s + STILL_S_MAX, until_s) and not cluster.is_at_rest:
        if place.truth.moves != moves:
            moves, since_s = place.truth.moves, place.world.seconds()
        await asyncio.sleep(LOOK_S)
        with suppress(Unavailable):
            await place.world.start(users.process, users.give_up_errors())
    await asyncio.sleep(5.0)  # what is late comes now, for nothing


def run(seed: int, *, trace: bool = False) -> Result:
    """Live through this seed.  The same seed gives the same history on the same code."""
    plan = drawn(seed)
    world = SeededWorld(Random(f"world {seed}"))
    with _silence(), simulated_children():
        asyncio.set_event_loop(world)
        try:
            place = Place(plan, world)
            place.is_traced = trace
            world.set_exception_handler(lambda _, seen: _unhandled(place, seen))
            try:
                violations = world.run_until_complete(live(place))
            except (Deadlock, AssertionError, ExceptionGroup) as error:
                violations = [Violation("C16 liveness", f"{type(error).__name__}: {error}")]
        finally:
            _bury(world)
    return Result(plan, violations, place.history.lines, world.seconds())


def _unhandled(place: Place, seen: dict[str, Any]) -> None:
    """What a callback raised and nobody caught: a real loop would only log it."""
    error = seen.get("exception")
    if error is not None and not isinstance(error, HoldfastError):
        place.tell("bug", what=f"{seen.get('message')}: {error!r}")


@contextmanager
def _silence() -> Iterator[None]:
    """Thousands of injected faults are no news; a history has all of them.

    Garbage is collected when a seed is over: what that closes must not depend on what the process
    did before.
    """
    level, hook = LOGGER.level, sys.unraisablehook
    LOGGER.setLevel(logging.CRITICAL + 1)
    sys.unraisablehook = lambda _: None
    gc.disable()
    try:
        yield
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # the killed never end their awaits
            gc.collect()
        gc.enable()
        LOGGER.setLevel(level)
        sys.unraisablehook = hook


def end_quietly() -> None:
    """What killed processes left open is closed with the interpreter, which is no news."""
    sys.unraisablehook = lambda _: None
    warnings.simplefilter("ignore", RuntimeWarning)


def _bury(world: SeededWorld) -> None:
    """Forget what killed processes left behind: nothing of it may run any more."""
    for task in asyncio.all_tasks(world):
        task._log_destroy_pending = False  # type: ignore[attr-defined]
    asyncio.set_event_loop(None)
    world.close()
