"""A node: dispatchers and workers for the queues it serves, and the beat that keeps its share."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from math import inf
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from holdfast.booking import Booking
from holdfast.bus import WAKER, Bus
from holdfast.clock import Clock
from holdfast.coordinator import Coordinator, View
from holdfast.dispatch.dispatcher import Dispatcher
from holdfast.dispatch.gate import Gate, RulesVersion
from holdfast.dispatch.intake import ANYONE
from holdfast.dispatch.size import BacklogSize, backlog_size
from holdfast.dispatch.slots import AllOf, FixedSlots, PerKind
from holdfast.dispatch.table import TriggerTable
from holdfast.errors import UnknownQueue
from holdfast.handler import Registry
from holdfast.ids import NodeId
from holdfast.limit import Mode
from holdfast.node.duties import NodeDuties
from holdfast.node.facts import Facts
from holdfast.node.kinds import Kinds
from holdfast.node.lag import LoopWatch, attempts
from holdfast.node.lease import NodeLease
from holdfast.node.pace import Pace
from holdfast.node.renewal import Order
from holdfast.node.resuming import Resuming
from holdfast.node.settings import NodeSettings
from holdfast.node.trust import Trust
from holdfast.node.unhandled import Unhandled
from holdfast.node.vitals import Vitals
from holdfast.store import NO_FACTS, Filter, Store
from holdfast.task import Event, Outcome, State, TaskId, Trigger
from holdfast.telemetry.events import (
    Events,
    NodeStarted,
    NodeStopped,
    StoreFailed,
)
from holdfast.worker.processes import ProcessPool
from holdfast.worker.settler import Ended
from holdfast.worker.suspects import Suspects
from holdfast.worker.worker import Worker

if TYPE_CHECKING:
    from holdfast.telemetry.tracing import Tracing

GRAB_BATCH_MIN = 50
OFFERED_MAX = 100  # triggers without a handler here, offered to others at a beat
COMPARING_MAX = 0.01  # of the time a node may spend on reading what runs in its name
DRAIN = "drain"  # what a person may ask of a node
LEAVING_S = 5.0  # for saying good-bye to the store
DRAINED_POLL_S = 0.05
EXPECTED_S = 3.0  # a lease that nobody has renewed for so long before its end will end
AFTER_END_S = 0.05  # the end of a lease is looked for so soon after it


class Node:
    """Serves queues from `async with` until its end; safe to kill at any moment."""

    def __init__(
        self,
        *,
        id: NodeId,
        queues: Sequence[str],
        store: Store,
        bus: Bus,
        coordinator: Coordinator,
        registry: Registry,
        clock: Clock,
        rng: Random,
        events: Events,
        settings: NodeSettings,
        tracing: Tracing | None = None,
        order: Order | None = None,
    ) -> None:
        """With an `order`, a process renews the lease, however long the loop is held up."""
        self.id = id
        self.queues = tuple(queues)
        self._store = store
        self._bus = bus
        self._coordinator = coordinator
        self._registry = registry
        self._clock = clock
        self._rng = rng
        self._events = events
        self._settings = settings
        self._tracing = tracing
        self._loops: list[asyncio.Task[None]] = []
        self._dispatchers: dict[str, Dispatcher] = {}
        self._workers: dict[str, Worker] = {}
        self._gates: dict[str, Gate] = {}
        self._rules_version = RulesVersion(store, clock)
        self._strangers: dict[TaskId, int] = {}  # PROCESSING as ours, but not running here
        self._moved_on: dict[TaskId, int] = {}  # running here, but no longer ours
        self._unhandled: dict[str, Unhandled] = {}
        self._compared_at = clock.seconds()
        self._running_at = 0.0  # from then on we may read again what runs in our name
        self._stopping = asyncio.Event()
        self._view: View | None = None
        self._renewed_at = float("-inf")
        self._facts = Facts(settings, registry)
        self._is_retiring = False
        self._vitals = Vitals(id, events=events)
        self._pace = Pace(clock)
        trust = Trust(settings.lease_s if settings.coordinator == "sql" else None)
        went_on = self._go_on
        self._lease = NodeLease(id, trust, order=order, clock=clock, events=events, went_on=went_on)
        running = lambda: attempts(self._workers.values(), registry)  # noqa: E731
        self._watch = LoopWatch(running, clock=clock, events=events)

    # ── life ──────────────────────────────────────────────────────────────────────────────

    async def __aenter__(self) -> Self:
        settings = self._settings
        self._threads = ThreadPoolExecutor(settings.slots_threads, "holdfast-handler")
        self._processes = ProcessPool(settings.slots_processes)
        self._suspects = Suspects(settings.slots_suspects, node=self.id, events=self._events)
        booking = self._make_booking()
        for queue in self.queues:
            self._build(queue, booking)
        self._duties = self._make_duties()
        self._resuming = self._make_resuming()
        try:
            for gate in self._gates.values():
                await gate.open()
            # Listen before looking: what is committed from now on rings, what was before is read.
            await self._bus.subscribe((*self.queues, WAKER), self._hear)
            await self._beat()
        except BaseException:
            await self._bus.unsubscribe(self._hear)
            await self._duties.stop()
            self._threads.shutdown(wait=False)
            raise
        for queue in self.queues:
            self._run(self._dispatchers[queue].books.keep(), f"books of {queue}")
            self._run(self._gates[queue].keep(), f"limits of {queue}")
        self._run(self._keep_beating(), "beat")
        self._run(self._lease.keep(), "lease")
        self._run(self._watch.keep(), "lag")
        self._duties.listen()
        self._events.emit(NodeStarted(self.id, self.queues))
        self._vitals.count()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Graceful: no new grabs, running attempts finish, the rest goes on at other nodes.

        With the store away there is no telling the others, and our lease ends by itself; attempts
        have their time all the same, and none of them is left behind.
        """
        await self._bus.unsubscribe(self._hear)
        workers, drain_s = self._workers.values(), self._settings.drain_s
        try:
            async with asyncio.timeout(drain_s + LEAVING_S):
                for dispatcher in self._dispatchers.values():
                    await dispatcher.stop()
                self._is_retiring = True
                await self._duties.stop()
                # Others may have the partitions before our attempts end.
                await self._try_to_leave(self._beat())
                await asyncio.gather(*(worker.drained(drain_s) for worker in workers))
                await self._stop_loops()
                for gate in self._gates.values():
                    await self._try_to_leave(gate.close())
                await self._try_to_leave(self._coordinator.leave())
        except Exception as left_behind:
            self._failed("leave", left_behind)
        finally:
            await self._stop_loops()
            await asyncio.gather(*(worker.ended(0.0) for worker in workers))
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._processes.close()
            self._suspects.close()
            self._events.emit(NodeStopped(self.id))

    async def _try_to_leave(self, step: Coroutine[Any, Any, object]) -> None:
        """One word of the good-bye: if it fails, the next ones are said all the same."""
        try:
            await step
        except Exception as error:
            self._failed("leave", error)

    async def _stop_loops(self) -> None:
        await self._duties.stop()
        loops, self._loops = self._loops, []
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)

    async def drained(self, timeout_s: float | None = None) -> None:
        """Wait until the queues have nothing left to run.

        That is: no task is SUBMITTED or PROCESSING anywhere, and none waits for a retry.  Tasks
        that their callers delayed are not waited for.
        """
        async with asyncio.timeout(timeout_s):
            while not await self._is_drained():  # noqa: ASYNC110
                await asyncio.sleep(DRAINED_POLL_S)

    @property
    def stopping(self) -> asyncio.Event:
        """Set when a person asked this node to drain: leave the `async with` then."""
        return self._stopping

    @property
    def is_idle(self) -> bool:
        """Whether nothing is in this node's memory: no trigger, no slot, no attempt."""
        return all(d.is_idle for d in self._dispatchers.values())

    @property
    def looked_ahead(self) -> int:
        """Triggers in this node's tables."""
        return sum(len(d.intake.table) for d in self._dispatchers.values())

    @property
    def in_flight(self) -> int:
        """Tasks that hold a slot here."""
        return sum(d.in_flight for d in self._dispatchers.values())

    @property
    def duties(self) -> list[str]:
        """The duties that this node keeps now, as far as it knows."""
        return self._duties.kept

    async def backlog(self, queue: str) -> BacklogSize:
        """How much waits in the partitions of this node: tasks that may run and do not yet.

        Several nodes share a queue: each answers for its own partitions.  The age is that of the
        task that became SUBMITTED first, counted from its enqueue.  `UnknownQueue` for a queue
        that this node does not serve; an error of the store when that is away.
        """
        dispatcher = self._dispatchers.get(queue)
        if dispatcher is None:
            raise UnknownQueue(f"this node serves {', '.join(self.queues)}, not {queue!r}")
        return await backlog_size(self._store, dispatcher, clock=self._clock)

    async def _is_drained(self) -> bool:
        # Asked again after the store: a trigger that comes late is tried, and lost, meanwhile.
        return self.is_idle and await self._is_store_drained() and self.is_idle

    async def _is_store_drained(self) -> bool:
        busy = (State.SUBMITTED, State.PROCESSING)
        if await self._store.find(Filter(states=busy, queues=self.queues, limit=1)):
            return False
        after: TaskId | None = None
        while page := await self._store.find(
            Filter(states=[State.WAITING], queues=self.queues, after=after, limit=500)
        ):
            if any(task.deliveries > 0 for task in page):
                return False
            after = page[-1].id
        return True

    # ── parts ─────────────────────────────────────────────────────────────────────────────

    def _make_booking(self) -> Booking:
        settings = self._settings
        by_mode = self._vitals.slots = {
            "async": FixedSlots(settings.slots_async),
            "thread": FixedSlots(settings.slots_threads),
            "process": FixedSlots(settings.slots_processes),
        }
        # One object per mode, shared by its kinds: what is limited is the loop, the pool.
        slots = PerKind(
            {
                h.kind: AllOf(by_mode[h.mode], h.booking) if h.booking else by_mode[h.mode]
                for h in self._registry
            }
        )
        return AllOf(slots, settings.booking) if settings.booking else slots

    def _make_gate(self, queue: str) -> Gate:
        return Gate(
            queue,
            node=self.id,
            store=self._store,
            clock=self._clock,
            events=self._events,
            running=lambda: self._dispatchers[queue].running,
            switched=lambda mode: self._switched(queue, mode),
            opened=lambda keys: self._dispatchers[queue].slot_freed(keys),
            version=self._rules_version,
        )

    def _make_table(
        self, size_max: int, weights: Mapping[str | None, float], turns: Mapping[str, float]
    ) -> TriggerTable:
        order = self._settings.order
        return TriggerTable(
            order=order, size_max=size_max, rng=self._rng, weights=weights, turns=turns
        )

    def _build(self, queue: str, booking: Booking) -> None:
        kinds = Kinds(self._registry, queue)
        # Half of the slots at most, so that one half is grabbed while the other is settled.
        half = max(GRAB_BATCH_MIN, self._settings.slots_async // 2)
        limits = self._settings.limits
        limits = replace(limits, grab_batch=min(limits.grab_batch, half))
        gate = self._gates[queue] = self._make_gate(queue)
        table = self._make_table(limits.look_ahead, gate.weights, kinds.turns)
        worker = Worker(
            node=self.id,
            store=self._store,
            registry=self._registry,
            threads=self._threads,
            processes=self._processes,
            suspects=self._suspects,
            finished=lambda ids: self._finished(queue, ids),
            ran=lambda batch: self._ran(queue, batch),
            again=lambda batch: self._again(queue, batch),
            clock=self._clock,
            rng=self._rng,
            events=self._events,
            tracing=self._tracing,
        )
        dispatcher = Dispatcher(
            queue,
            node=self.id,
            store=self._store,
            table=table,
            booking=booking,
            kinds=kinds,
            start=worker.start,
            clock=self._clock,
            events=self._events,
            limits=limits,
            gate=gate,
            may_act=self._lease.holds,
        )
        self._workers[queue] = worker
        self._dispatchers[queue] = dispatcher
        self._unhandled[queue] = Unhandled(
            queue,
            dispatcher.intake,
            self._store,
            clock=self._clock,
            wait_s=self._settings.unknown_kind_wait_s,
        )

    def _make_resuming(self) -> Resuming:
        return Resuming(
            self.id,
            store=self._store,
            bus=self._bus,
            coordinator=self._coordinator,
            lease=self._lease,
            events=self._events,
            lease_s=self._settings.lease_s,
            deliveries_max=self._settings.deliveries_max,
            now=self._clock.seconds(),
        )

    def _make_duties(self) -> NodeDuties:
        return NodeDuties(
            self.id,
            self._store,
            self._bus,
            coordinator=self._coordinator,
            settings=self._settings,
            clock=self._clock,
            events=self._events,
            may_act=self._lease.holds,
        )

    def _run(self, loop: Coroutine[Any, Any, None], name: str) -> None:
        self._loops.append(asyncio.create_task(loop, name=f"holdfast {name}"))

    # ── what reaches us ───────────────────────────────────────────────────────────────────

    def _hear(self, queue: str, triggers: Sequence[Trigger]) -> Sequence[Trigger]:
        if queue == WAKER:
            return self._duties.hear_of_time(triggers)
        dispatcher = self._dispatchers[queue]
        if not triggers:
            dispatcher.hear(())
            return ()
        owned = dispatcher.intake.partitions
        worker = self._workers[queue]
        runnable: list[Trigger] = []
        strange: list[Trigger] = []
        for trigger in triggers:
            worker.take_back(trigger.id, trigger.version - 1)
            is_strange = self._is_for_others(trigger, owned)
            (strange if is_strange else runnable).append(trigger)
        if runnable:
            # What it refuses is ours all the same: nobody else could take it in.
            dispatcher.hear(runnable)
        return strange

    def _is_for_others(self, trigger: Trigger, owned: Container[int]) -> bool:
        """Whether another node owns its partition or, when anyone may try, only others can run it.

        An owner without a handler must not swallow the trigger that it sends to everybody.
        """
        if trigger.partition == ANYONE:
            return self._registry.get(trigger.kind) is None
        return trigger.partition not in owned

    def _finished(self, queue: str, ids: Sequence[TaskId]) -> None:
        self._dispatchers[queue].finished(ids)
        for name, other in self._dispatchers.items():
            if name != queue:
                other.slot_freed()  # queues share the node's slots

    def _ran(self, queue: str, batch: Sequence[Ended]) -> None:
        self._pace.add(queue, batch)
        dispatcher = self._dispatchers[queue]
        if dispatcher.charges_by_cost:
            dispatcher.ran({ended.task.id: ended.ran_s for ended in batch})

    def _again(self, queue: str, batch: Sequence[Ended]) -> None:
        """What will run once more is heard of at once, without a poll."""
        heard_of = []
        for task, outcome, _, _ in batch:
            if outcome.event not in (Event.REPEATED, Event.RETRIED):
                continue
            heard_of.append(
                Trigger(
                    task.id,
                    task.version + 1,
                    task.queue,
                    task.partition,
                    task.kind,
                    task.priority,
                    task.fairness_key,
                    task.weight,
                    task.ordering_key,
                    self._due_at(outcome),
                )
            )
        if heard_of:
            self._bus.publish(heard_of)

    def _due_at(self, outcome: Outcome) -> datetime | None:
        """When a retry will be due, about: it is a hint for the waker."""
        if outcome.event is not Event.RETRIED:
            return None
        return self._clock.now() + timedelta(seconds=outcome.delay_s)

    # ── the beat ──────────────────────────────────────────────────────────────────────────

    async def _keep_beating(self) -> None:
        while True:
            await asyncio.sleep(self._beat_in_s())
            self._vitals.count()
            try:
                await self._beat()
                await self._look_again()
            except Exception as error:
                self._failed("beat", error)

    def _beat_in_s(self) -> float:
        """After a tick; sooner when a lease ends before, so that its tasks do not wait for one."""
        tick_s = min(self._settings.tick_s, self._settings.lease_s / 3)
        ends_in_s = inf if self._view is None else self._view.ends_in_s
        return min(tick_s, max(ends_in_s, 0.0) + AFTER_END_S)

    async def _beat(self) -> None:
        asked_at = self._clock.seconds()
        renews = self._must_renew(asked_at)
        view = await self._coordinator.beat(
            retiring=self._is_retiring, renews=renews, facts=self._told() if renews else NO_FACTS
        )
        if renews:
            self._renewed_at = asked_at
            self._lease.renewed(asked_at)
        self._view = view
        if view.ends_in_s < min(EXPECTED_S, self._settings.lease_s / 3):
            self._suspects.expect(self._registry)
        self._rules_version.heard(view.rules_version)
        self._lease.see(view.ended)
        if view.asked == DRAIN:
            self._stopping.set()
        for queue in self.queues:
            dispatcher = self._dispatchers[queue]
            owned = view.owned[queue]
            dispatcher.lose([n for n, e in dispatcher.epochs.items() if owned.get(n) != e])
            share = view.shares[queue]
            if share.let_go:
                dispatcher.lose(share.let_go)
                await self._coordinator.let_go(queue, share.let_go)
            # What the store says we own but we do not dispatch is claimed anew, with a new epoch.
            unknown = {n: e for n, e in owned.items() if n not in dispatcher.epochs}
            unknown = {n: e for n, e in unknown.items() if n not in share.let_go}
            await self._take(queue, share.claim | unknown)
        await self._resuming.see(view, self._clock.seconds())
        if not self._is_retiring:
            await self._duties.look(view)

    def _must_renew(self, now: float) -> bool:
        """A third of the lease has passed, or we have none, or we have to say that we retire."""
        is_due = now - self._renewed_at >= self._settings.lease_s / 3 - self._settings.tick_s / 2
        return is_due or self._is_retiring or not self._lease.holds()

    def _told(self) -> dict[str, Any]:
        return self._facts.told(
            renewer_pid=self._lease.renewer_pid,
            lag_s=self._watch.lag_s,
            running=self.in_flight,
            taken=self._vitals.taken,
            pace=self._pace.told(),
        )

    def _go_on(self) -> None:
        """The lease holds, again: what was left alone meanwhile is looked at."""
        for dispatcher in self._dispatchers.values():
            dispatcher.wake()

    def _switched(self, queue: str, mode: Mode) -> None:
        """The rules have changed.  A paused partition leaves memory; a beat takes it up again."""
        self._dispatchers[queue].switch(mode)
        self._dispatchers[queue].lose(self._gates[queue].paused_partitions)

    async def _take(self, queue: str, wanted: dict[int, int]) -> None:
        paused = self._gates[queue].paused_partitions
        wanted = {number: epoch for number, epoch in wanted.items() if number not in paused}
        if not wanted or not self._lease.holds():
            return
        epochs = await self._coordinator.claimed(queue, wanted)
        if not epochs:
            return
        for loaded in await self._store.load(queue, list(epochs)):
            if loaded.partition not in self._gates[queue].paused_partitions:  # since then
                self._dispatchers[queue].take(loaded, epochs[loaded.partition])
            await self._resuming.resume({running.node for running in loaded.running})

    # ── second looks ──────────────────────────────────────────────────────────────────────

    async def _look_again(self) -> None:
        for queue in self.queues:
            unhandled = self._unhandled[queue]
            await unhandled.forget_handled()
            # Few at a time: a bus turns very many into a doorbell, which only owners answer.
            self._bus.publish(self._dispatchers[queue].second_look()[:OFFERED_MAX])
            kinds = self._view.kinds.get(queue, frozenset()) if self._view else frozenset()
            await unhandled.park(kinds)
        now = self._clock.seconds()
        if now - self._compared_at >= self._settings.lease_s / 3:
            self._compared_at = now
            await self._compare()
        owned = ((queue, list(self._dispatchers[queue].epochs)) for queue in self.queues)
        await self._resuming.look_for_orphans(owned, now)

    async def _compare(self) -> None:
        """Compare our PROCESSING rows with what runs here; both kinds of difference are mended."""
        held: dict[TaskId, int] = {}
        booked: set[TaskId] = set()
        for queue in self.queues:
            held |= self._workers[queue].held
            booked |= self._dispatchers[queue].booked
        # Twice in a row, because an attempt that is being settled has moved on as well.
        moved_on = {id: held[id] for id in await self._store.moved_on(self.id, held)}
        for id, version in moved_on.items():
            if self._moved_on.get(id) == version:
                for worker in self._workers.values():
                    worker.take_back(id, version)
        self._moved_on = moved_on
        if self._clock.seconds() >= self._running_at:
            await self._give_back(held, booked)

    async def _give_back(self, held: Mapping[TaskId, int], booked: Container[TaskId]) -> None:
        """What is PROCESSING in our name but does not run here, twice in a row, is given back."""
        began = self._clock.seconds()
        running = await self._store.running_of(self.id)
        now = self._clock.seconds()
        self._running_at = now + (now - began) / COMPARING_MAX
        unknown = {
            row.id: row.version
            for row in running
            if held.get(row.id) != row.version and row.id not in booked
        }
        twice = {id: v for id, v in unknown.items() if self._strangers.get(id) == v}
        self._strangers = unknown
        if twice:  # a grab of ours whose reply was lost, and which nobody repeated
            outcomes = [
                Outcome(id, v, Event.REPEATED, counts=False, forgives=False)
                for id, v in twice.items()
            ]
            await self._store.settle(outcomes, node=self.id)
            for dispatcher in self._dispatchers.values():
                dispatcher.hear(())

    def _failed(self, verb: str, error: Exception) -> None:
        self._events.emit(StoreFailed(verb, str(error)))
