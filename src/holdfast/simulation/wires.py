"""How a simulated process reaches the others: its way to the store, and the bus between them.

Every call to the store travels there and back in random time, so that calls of many processes meet
in every order.  It may get lost on the way there (nothing happened), or on the way back (it
happened, and nobody knows): both look the same to the caller.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any, TypeVar

from holdfast.bus import Hear
from holdfast.buses.listeners import Listeners
from holdfast.errors import OutcomeUnknown, StoreUnavailable
from holdfast.ids import NodeId
from holdfast.simulation.plan import Plan
from holdfast.simulation.truth import Truth
from holdfast.simulation.world import Process, SeededWorld
from holdfast.task import Grabbed, Trigger
from holdfast.telemetry.events import Events
from holdfast.testing.faults import VERBS

T = TypeVar("T")

SERVER = Process("server")
MORE_VERBS = VERBS | {
    "rules_version", "rules", "change_rules", "allot", "survey", "unknown_queues", "health",
}  # fmt: skip
SLOW_S = 1.0  # mean of a call that is slow
LATE_S = 0.5  # mean of a trigger that is late
DOORBELL_SHARE = 0.2  # of what is sent, where callers come in crowds


class Faults:
    """What goes wrong between processes, until it is healed."""

    def __init__(self, plan: Plan, world: SeededWorld) -> None:
        self.plan = plan
        self.world = world
        self.rng = Random(f"faults {plan.seed}")
        self.is_healed = True  # until they begin
        self.isolated: set[Process] = set()  # cannot reach the store

    def begin(self) -> None:
        self.is_healed = False

    def heal(self) -> None:
        self.is_healed = True
        self.isolated.clear()

    def of_call(self) -> str | None:
        return None if self.is_healed else _drawn(self.rng, self.plan.store_faults)

    def of_trigger(self, fault: str) -> bool:
        rate = 0.0 if self.is_healed else self.plan.bus_faults.get(fault, 0.0)
        return rate > 0 and self.rng.random() < rate

    async def travel(self) -> None:
        await asyncio.sleep(self.rng.expovariate(1 / self.plan.travel_s))


class Wire:
    """The store as one process reaches it.

    A request that has left is carried out, whatever becomes of the process that sent it.
    """

    def __init__(self, truth: Truth, process: Process, faults: Faults) -> None:
        self._truth = truth
        self._process = process
        self._faults = faults
        self.partitions = truth.partitions

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._truth, name)
        if name not in MORE_VERBS:
            return verb

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await self._asked(name, lambda: verb(*args, **kwargs))

        return call

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    @asynccontextmanager
    async def transaction(self, task: Grabbed, *, node: NodeId) -> AsyncIterator[Any]:
        transaction = self._truth.begun()
        yield transaction
        await self._asked("commit", lambda: self._truth.committed(transaction, node))

    def _asked(self, name: str, verb: Callable[[], Awaitable[T]]) -> asyncio.Future[T]:
        world = self._faults.world
        answer: asyncio.Future[T] = world.create_future()
        answer.add_done_callback(_seen)
        world.start(SERVER, self._serve(name, verb, answer))
        return answer

    async def _serve(
        self, name: str, verb: Callable[[], Awaitable[T]], answer: asyncio.Future[T]
    ) -> None:
        """The way there, the call, the way back."""
        faults = self._faults
        fault = faults.of_call()
        lost = _lost(name)
        try:
            await faults.travel()
            if fault == "slow":
                await asyncio.sleep(faults.rng.expovariate(1 / SLOW_S))
            if fault == "fail_before" or self._process in faults.isolated:
                raise StoreUnavailable(f"simulated: {name} never arrived")
            found = await verb()
            await faults.travel()
            if fault == "lose_reply" or self._process in faults.isolated:
                raise lost
        except Exception as error:
            if not answer.done():
                answer.set_exception(error)
        else:
            if not answer.done():
                answer.set_result(found)


def _lost(name: str) -> Exception:
    text = f"simulated: the answer of {name} was lost"
    if name in ("enqueue", "commit"):
        return OutcomeUnknown(text, repeat_is_safe=False)
    return StoreUnavailable(text)


def _seen(answer: asyncio.Future[Any]) -> None:
    """Whoever asked may be dead: an error that nobody reads is no news."""
    if not answer.cancelled():
        answer.exception()


class Network:
    """Carries triggers from process to process, as PostgreSQL's NOTIFY would."""

    def __init__(self, faults: Faults) -> None:
        self.faults = faults
        self.buses: list[WiredBus] = []
        self._bells = Random(f"doorbells {faults.plan.seed}")

    def send(self, sender: WiredBus, queue: str, triggers: Sequence[Trigger]) -> None:
        for bus in self.buses:
            if bus is not sender and not bus.process.is_dead:
                self._carry(bus, queue, self._shortened(triggers))

    def _shortened(self, triggers: Sequence[Trigger]) -> Sequence[Trigger | None]:
        """Very many triggers are sent as one that only says: look yourself."""
        if "crowds" in self.faults.plan.habits and self._bells.random() < DOORBELL_SHARE:
            return [None]
        return triggers

    def _carry(self, bus: WiredBus, queue: str, triggers: Sequence[Trigger | None]) -> None:
        faults = self.faults
        for trigger in triggers:
            if faults.of_trigger("lose"):
                continue
            for _ in range(2 if faults.of_trigger("double") else 1):
                way_s = faults.rng.expovariate(1 / faults.plan.travel_s)
                if faults.of_trigger("late"):
                    way_s += faults.rng.expovariate(1 / LATE_S)
                context = bus.process.context
                faults.world.call_later(way_s, bus.hear, queue, trigger, context=context)


class WiredBus:
    """The bus of one process.  Its own listeners are asked first, as with every bus."""

    def __init__(self, network: Network, process: Process, *, events: Events) -> None:
        self.process = process
        self._network = network
        self._listeners = Listeners(self._beyond, events=events)
        network.buses.append(self)

    def publish(self, triggers: Sequence[Trigger]) -> None:
        faults = self._network.faults
        kept = [trigger for trigger in triggers if not faults.of_trigger("lose")]
        self._listeners.offer(kept)

    async def subscribe(self, queues: Collection[str], hear: Hear) -> None:
        self._listeners.add(queues, hear)

    async def unsubscribe(self, hear: Hear) -> None:
        self._listeners.remove(hear)

    async def close(self) -> None:
        self._listeners.clear()
        if self in self._network.buses:
            self._network.buses.remove(self)

    def hear(self, queue: str, trigger: Trigger | None) -> None:
        if not self.process.is_dead:
            self._listeners.hear(queue, [] if trigger is None else [trigger])

    def _beyond(self, queue: str, triggers: Sequence[Trigger]) -> None:
        self._network.send(self, queue, triggers)


def _drawn(rng: Random, rates: dict[str, float]) -> str | None:
    dice = rng.random()
    for fault, rate in rates.items():
        dice -= rate
        if dice < 0:
            return fault
    return None
