"""Simulated processes: each has an app of its own, on its own way to the one store."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

from holdfast.app import Holdfast
from holdfast.booking import Booking
from holdfast.client import Client
from holdfast.dispatch.limits import Limits
from holdfast.dispatch.slots import AllOf, FixedSlots, PerKey, PerKind
from holdfast.duties.sequencer import Sequencer
from holdfast.errors import HoldfastError
from holdfast.handler import Handler
from holdfast.ids import NodeId
from holdfast.node.compose import Runtime
from holdfast.node.node import Node
from holdfast.node.settings import NodeSettings
from holdfast.policy import Retention
from holdfast.ring import RingRecord
from holdfast.simulation.kinds import CONFIG, QUEUES, handlers
from holdfast.simulation.plan import Plan
from holdfast.simulation.truth import Truth
from holdfast.simulation.wild_kinds import Moody, wild_handlers
from holdfast.simulation.wires import Faults, Network, Wire, WiredBus
from holdfast.simulation.world import Process, SeededWorld, SkewedClock
from holdfast.task import TaskId
from holdfast.tasks import TaskDefinition
from holdfast.telemetry.events import BugFound, StoreFailed, TaskGrabbed
from holdfast.verify.history import History

START_AGAIN_S = 0.5
PARTIAL_SHARE = 0.5  # of the nodes, where there are strangers, serve less than all
RING = "changes"
RING_TICK_S = 0.4
RING_KEPT = 20


class Place:
    """What all processes of one simulation share."""

    def __init__(self, plan: Plan, world: SeededWorld) -> None:
        self.plan = plan
        self.world = world
        self.history = History()
        self.truth = Truth(clock=world, history=self.history)
        self.truth.skipping = frozenset(h.kind for h in self.handlers if h.skips_errors)
        self.faults = Faults(plan, world)
        self.network = Network(self.faults)
        self.is_traced = False
        self.is_deployed = False  # from now on every node serves everything
        self.known: list[TaskId] = []  # to whoever wishes something of a task

    @property
    def handlers(self) -> tuple[Handler, ...]:
        """The kinds of this seed's program."""
        return (*handlers(), *(wild_handlers() if self.plan.habits else ()))

    def tell(self, op: str, **fields: Any) -> None:
        self.history.add(self.world.seconds(), op, **fields)


class _Runtimes:
    """What an app asks for when it wants its store: one runtime, open from the start."""

    def __init__(self, runtime: Runtime) -> None:
        self.here = runtime

    async def get(self) -> Runtime:
        return self.here


class Program:
    """A process that runs our code: a client, and perhaps a node."""

    def __init__(self, place: Place, name: str) -> None:
        self.place = place
        self.process = Process(name, tell=place.tell)
        plan = place.plan
        rng = Random(f"{name} {plan.seed}")
        skew_s = rng.uniform(-plan.skew_s, plan.skew_s)
        clock = SkewedClock(place.world, skew_s=skew_s, drift=rng.choice((0.0, 1e-4)))
        self.app = Holdfast(config=CONFIG, clock=clock, rng=rng)
        self.process.rng = Random(f"{name} inside {plan.seed}")
        self.definitions = {}
        for handler in self._handlers():
            self.app.registry.add(handler)
            self.definitions[handler.kind] = TaskDefinition[Any, Any](self.app, handler)
        self.app.events.listen(self._hear)
        self.app._runtimes = self._runtimes()  # type: ignore[assignment]

    def _handlers(self) -> tuple[Handler, ...]:
        """What this version of the program has."""
        return self.place.handlers

    def _runtimes(self) -> _Runtimes:
        place, events = self.place, self.app.events
        wire: Any = Wire(place.truth, self.process, place.faults)
        self.process.store = wire
        bus = WiredBus(place.network, self.process, events=events)
        client = Client(wire, bus, events=events)
        kit: Any = None  # nobody enqueues within a transaction of their own
        address = self.app.config.address
        return _Runtimes(Runtime(wire, bus, client, kit, place.world, address))

    def _hear(self, event: object) -> None:
        if isinstance(event, TaskGrabbed):
            self.process.node = event.node
        elif isinstance(event, BugFound):
            self.place.tell("bug", what=event.what, node=self.process.name)
        elif self.place.is_traced:
            self.place.tell("event", what=repr(event), node=self.process.name)


class NodeProgram(Program):
    """A process with a node; when it cannot start, it is started again as a supervisor would."""

    def __init__(self, place: Place, name: str) -> None:
        rng = Random(f"{name} serves {place.plan.seed}")
        has_strangers = "strangers" in place.plan.habits and not place.is_deployed
        self.is_partial = has_strangers and rng.random() < PARTIAL_SHARE
        self._missing = {handler.kind for handler in place.handlers if rng.random() < 0.3}
        self.queues = [rng.choice(QUEUES)] if self.is_partial and rng.random() < 0.5 else QUEUES
        self._failed_to_leave = False
        super().__init__(place, name)
        self.node: Node | None = None
        self._alive: frozenset[NodeId] = frozenset()
        self._may_leave = asyncio.Event()
        self.ended = asyncio.Event()
        place.world.start(self.process, self._serve())

    def leave(self) -> None:
        """Ask it to end gracefully."""
        self._may_leave.set()

    @property
    def is_leaving(self) -> bool:
        return self._may_leave.is_set()

    def _handlers(self) -> tuple[Handler, ...]:
        """Deploys do not reach all nodes at once: some lack a few kinds."""
        known = super()._handlers()
        if not self.is_partial:
            return known
        served = {queue: [h for h in known if h.queue == queue] for queue in self.queues}
        first = {line[0].kind for line in served.values()}  # a queue has one kind at least
        return tuple(h for h in known if h.kind not in self._missing - first)

    async def _serve(self) -> None:
        while not self._may_leave.is_set():
            try:
                settings = settings_of(self.place.plan)
                async with self.app.node(self.queues, settings=settings) as node:
                    self.node = node
                    self.process.node = node.id
                    ticking = self._write_log(node.id)
                    await self._may_leave.wait()
                    if ticking is not None:
                        ticking.cancel()
                self._look_back(node)
            except HoldfastError:
                await asyncio.sleep(START_AGAIN_S)
            finally:
                self.node = None
        self.ended.set()

    def _hear(self, event: object) -> None:
        self._failed_to_leave |= isinstance(event, StoreFailed) and event.verb == "leave"
        super()._hear(event)

    def _look_back(self, node: Node) -> None:
        """A node that has left runs nothing that somebody could still wait for.

        Nor does it grab, unless the store was away and it could not wait for the answer.
        """
        if not self._failed_to_leave and any(d._grabs for d in node._dispatchers.values()):
            self.place.tell("bug", what="a grab was left behind", node=self.process.name)
        for run in [run for worker in node._workers.values() for run in worker.runs]:
            if not run.attempt.done() and not run.is_abandoned:
                what = f"an attempt of kind {run.tasks[0].kind!r} was left behind"
                self.place.tell("bug", what=what, node=self.process.name)

    def _write_log(self, node: NodeId) -> asyncio.Task[None] | None:
        """Take part in the log of a ring, as the order of all changes will be one."""
        if "ring" not in self.place.plan.habits:
            return None
        store, rng = self.process.store, self.process.rng

        async def wanted(latest: RingRecord) -> bytes | None:
            members = await store.members()
            self._alive = frozenset(member.node for member in members if member.is_alive)
            return b"change" if rng.random() < 0.7 else None

        sequencer = Sequencer(
            RING,
            node,
            log=store,
            alive=lambda: self._alive,
            wanted=wanted,
            clock=self.app._clock,
            events=self.app.events,
            tick_s=RING_TICK_S,
            kept=RING_KEPT,
        )
        return self.place.world.start(self.process, sequencer.keep())


def settings_of(plan: Plan) -> NodeSettings:
    """Everything a little faster than by default: a second of this world is rich in events."""
    look_ahead = max(20, plan.window * 4)
    limits = Limits(
        window=plan.window,
        reload_at=max(1, plan.window // 10),
        look_ahead=look_ahead,
        lane_window=max(1, look_ahead // 10),
        lanes_loaded=look_ahead // 3,
        idle_wait_s=2.0,
        exact_s=0.5,
        trim_s=2.0,
        retry_s_max=1.0,
    )
    settings = NodeSettings(
        slots_async=plan.slots,
        slots_suspects=0,
        lease_s=plan.lease_s,
        tick_s=plan.lease_s / 6,
        renewer="loop",
        drain_s=2.0,
        deliveries_max=4,
        submitted_deadline_s=20.0,
        resume_every_s=3.0,
        watch_every_s=10.0,
        limits=limits,
    )
    return _wild(settings, plan) if plan.habits else settings


def _wild(settings: NodeSettings, plan: Plan) -> NodeSettings:
    """What the habits of a seed need."""
    booking = None
    if "bookings" in plan.habits:
        by_kind: dict[str, Booking] = {
            "speaking": FixedSlots(3),
            "threaded": AllOf(FixedSlots(2), PerKey(1)),
        }
        booking = AllOf(PerKind(by_kind, PerKey(2)), Moody())
    return replace(
        settings,
        slots_threads=2,
        slots_suspects=2 if "poison" in plan.habits or "pools" in plan.habits else 0,
        booking=booking,
        order="arrival" if plan.is_by_arrival else "fair",
        unknown_kind_wait_s=5.0,
        submitted_deadline_s=5.0,
        watch_every_s=3.0,
        stuck_alert_s=2.0,
        retention=Retention(timedelta(seconds=5)),
    )
