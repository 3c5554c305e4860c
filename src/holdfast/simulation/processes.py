"""Simulated processes: each has an app of its own, on its own way to the one store."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from holdfast.app import Holdfast
from holdfast.client import Client
from holdfast.dispatch.limits import Limits
from holdfast.errors import HoldfastError
from holdfast.node.compose import Runtime
from holdfast.node.node import Node
from holdfast.node.settings import NodeSettings
from holdfast.simulation.kinds import CONFIG, QUEUES, handlers
from holdfast.simulation.plan import Plan
from holdfast.simulation.truth import Truth
from holdfast.simulation.wires import Faults, Network, Wire, WiredBus
from holdfast.simulation.world import Process, SeededWorld, SkewedClock
from holdfast.tasks import TaskDefinition
from holdfast.telemetry.events import BugFound, TaskGrabbed
from holdfast.verify.history import History

START_AGAIN_S = 0.5


class Place:
    """What all processes of one simulation share."""

    def __init__(self, plan: Plan, world: SeededWorld) -> None:
        self.plan = plan
        self.world = world
        self.history = History()
        self.truth = Truth(clock=world, history=self.history)
        self.faults = Faults(plan, world)
        self.network = Network(self.faults)
        self.is_traced = False

    def is_at_rest(self) -> bool:
        """Whether nothing waits or runs in the store."""
        return not self.truth.is_busy

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
        self.definitions = {}
        for handler in handlers():
            self.app.registry.add(handler)
            self.definitions[handler.kind] = TaskDefinition[Any, Any](self.app, handler)
        self.app.events.listen(self._hear)
        self.app._runtimes = self._runtimes()  # type: ignore[assignment]

    def _runtimes(self) -> _Runtimes:
        place, events = self.place, self.app.events
        wire: Any = Wire(place.truth, self.process, place.faults)
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
        super().__init__(place, name)
        self.node: Node | None = None
        self._may_leave = asyncio.Event()
        self.ended = asyncio.Event()
        place.world.start(self.process, self._serve())

    def leave(self) -> None:
        """Ask it to end gracefully."""
        self._may_leave.set()

    @property
    def is_leaving(self) -> bool:
        return self._may_leave.is_set()

    async def _serve(self) -> None:
        while not self._may_leave.is_set():
            try:
                settings = settings_of(self.place.plan)
                async with self.app.node(QUEUES, settings=settings) as self.node:
                    self.process.node = self.node.id
                    await self._may_leave.wait()
            except HoldfastError:
                await asyncio.sleep(START_AGAIN_S)
            finally:
                self.node = None
        self.ended.set()


def settings_of(plan: Plan) -> NodeSettings:
    """Everything a little faster than by default: a second of this world is rich in events."""
    limits = Limits(
        window=plan.window,
        reload_at=max(1, plan.window // 10),
        look_ahead=max(20, plan.window * 4),
        idle_wait_s=2.0,
        exact_s=0.5,
        trim_s=2.0,
        retry_s_max=1.0,
    )
    return NodeSettings(
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
