"""The dispatcher of one queue: takes from the trigger table, grabs, hands over to the worker.

A slot is booked before the grab and freed after the settle, in every ending.  Only the grab
decides: a trigger that comes late, twice or for nothing costs one row of one statement.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Protocol

from holdfast.booking import Booking, Full
from holdfast.clock import Clock
from holdfast.dispatch.alarm import Alarm
from holdfast.dispatch.books import Books
from holdfast.dispatch.gate import Gate
from holdfast.dispatch.intake import ANYONE, Intake
from holdfast.dispatch.limits import Limits
from holdfast.dispatch.table import TriggerTable
from holdfast.errors import SchemaError, Unavailable
from holdfast.ids import NodeId
from holdfast.limit import Mode
from holdfast.store import Grab, Loaded, Running, Store
from holdfast.task import Grabbed, TaskId, Trigger
from holdfast.telemetry.events import (
    BugFound,
    Events,
    GrabLost,
    PartitionTaken,
    StoreFailed,
    TaskGrabbed,
    TriggersTurnedAway,
)


class Kinds(Protocol):
    """What the dispatcher asks of the handlers."""

    def handles(self, kind: str) -> bool: ...
    @property
    def deadlines_s(self) -> dict[str, float]: ...
    @property
    def skipping_errors(self) -> frozenset[str]: ...


Start = Callable[[Sequence[Grabbed]], None]

BUSY = Full(key_only=True)
STRAIGHT = 2  # the version of a task that was grabbed right after its enqueue
KEYS_ASKED_MAX = 64  # keys held back that are asked again whenever any slot is freed


class Dispatcher:
    """Dispatches the partitions of one queue that this node owns."""

    def __init__(
        self,
        queue: str,
        *,
        node: NodeId,
        store: Store,
        table: TriggerTable,
        booking: Booking,
        kinds: Kinds,
        start: Start,
        clock: Clock,
        events: Events,
        limits: Limits,
        gate: Gate | None = None,
        may_act: Callable[[], bool] = lambda: True,
    ) -> None:
        self.queue = queue
        self.intake = Intake(queue, table, limits, handles=kinds.handles)
        self.books = Books(
            store,
            self.intake,
            clock=clock,
            events=events,
            offered=self.wake,
            runs_low=self._runs_low,
        )
        self._node, self._store = node, store
        self._table = table
        self._booking = booking
        self._gate = gate
        self._kinds = kinds
        self._start = start
        self._clock, self._events = clock, events
        self._limits = limits
        self._may_act = may_act  # a node without a lease grabs nothing
        self._booked: dict[TaskId, Trigger] = {}
        self._later: dict[TaskId, Trigger] = {}  # wait for an older attempt of the same task
        self._spoilt: set[tuple[TaskId, int]] = set()  # cannot be grabbed, wait to be written anew
        self._misjudged: dict[TaskId, str] = {}  # the booking policy raised: why
        self._preferred: list[Trigger] = []  # booked in place of younger ones of their keys
        self._busy: dict[str, TaskId] = {}  # ordering keys with a task on its way or running
        self._foreign: dict[str, Running] = {}  # ordering keys that another live node is running
        self._blocked = table.elders.awaited  # ordering keys that wait for an elder
        self._grabs: set[asyncio.Task[None]] = set()
        self._is_stopping = self._wake_set = False
        self._now = clock.now()  # for bookings: the beginning of the pump
        self._loop = asyncio.get_running_loop()
        self._alarm = Alarm(
            self._time_came, self.slot_freed, clock=clock, idle_wait_s=limits.idle_wait_s
        )

    # ── what others tell us ───────────────────────────────────────────────────────────────

    def hear(self, triggers: Sequence[Trigger]) -> Sequence[Trigger]:
        """Hints from the bus; none means "look yourself".  Never waits.

        Answers those that found no room, and says so to whoever listens to events, before it
        returns.  Their tasks stay SUBMITTED in the store and are read as soon as there is room;
        if the process dies before that, the next owner reads them.
        """
        if not triggers:
            self.books.ring()
            return ()
        refused = self.intake.hear(triggers)
        if refused:
            has_room = self._table.has_room
            reason = "too many writes are pending" if has_room else "the trigger table is full"
            self.books.refused()
            self._events.emit(TriggersTurnedAway(self.queue, len(refused), reason))
        if self._blocked:
            for trigger in triggers:
                if trigger.ordering_key in self._blocked:
                    self._unblock(trigger.ordering_key)
        if any(partition.unwritten for partition in self.intake.partitions.values()):
            self.books.nudge()
        self.wake()
        return refused

    def take(self, loaded: Loaded, epoch: int) -> None:
        """Begin to dispatch a partition that was claimed under this epoch."""
        self.intake.take(loaded, epoch)
        for running in loaded.running:
            if running.ordering_key is not None and running.node != self._node:
                self._foreign[running.ordering_key] = running
        self._events.emit(PartitionTaken(self.queue, loaded.partition, epoch))
        self.books.took()

    def lose(self, partitions: Iterable[int]) -> None:
        """Stop dispatching partitions; what runs already goes on."""
        for number in partitions:
            self.intake.lose(number)

    @property
    def epochs(self) -> dict[int, int]:
        return {number: p.epoch for number, p in self.intake.partitions.items()}

    @property
    def booked(self) -> set[TaskId]:
        """Tasks that hold a slot, by id."""
        return set(self._booked)

    @property
    def running(self) -> list[Trigger]:
        """The triggers that hold a slot."""
        return list(self._booked.values())

    def slot_freed(self, keys: Iterable[str | None] | None = None) -> None:
        """A slot that others may share was given back: whoever was refused may ask again.

        With `keys`, those whose tasks gave it back.  A few others are asked too, because a policy
        may count by something else; where many are held back, they wait for the second look.
        """
        self._table.freed()
        held = self._table.keys_held
        if keys is not None and len(held) > KEYS_ASKED_MAX:
            held = list(keys)
        for key in held:
            if not self._is_held(key):
                self._release(key)
        self.wake()

    def _release(self, key: str | None) -> None:
        if self.intake.stored.released(self._table.release(key)):
            self.books.nudge()

    @property
    def in_flight(self) -> int:
        """Tasks that hold a slot."""
        return len(self._booked)

    @property
    def is_idle(self) -> bool:
        return not (self._booked or self._table or self._grabs or self._later or self._spoilt)

    def switch(self, mode: Mode) -> None:
        """How fairness keys are charged from now on."""
        self._table.switch(mode)

    def ran(self, times_s: Mapping[TaskId, float]) -> None:
        """How long handlers ran: under `cost` fairness their keys are charged for it."""
        for id, ran_s in times_s.items():
            if (trigger := self._booked.get(id)) is not None:
                self._table.charge(trigger, ran_s)

    @property
    def charges_by_cost(self) -> bool:
        return self._table.charges_by_cost

    def second_look(self) -> list[Trigger]:
        """Try again what waited for others; answers triggers that only another node can run."""
        for key in list(self._blocked):
            self._unblock(key)
        for key in list(self._foreign):
            del self._foreign[key]
        self.slot_freed()
        return [
            trigger._replace(partition=ANYONE)
            for trigger in self.intake.unhandled.values()
            if trigger.ordering_key is None
        ]

    async def stop(self) -> None:
        """No new grabs; those under way are decided and handed over."""
        self._is_stopping = True
        self._alarm.cancel()
        while self._grabs:
            await asyncio.wait(self._grabs)

    # ── the pump ──────────────────────────────────────────────────────────────────────────

    def wake(self) -> None:
        """Pump once at the next turn of the loop, however many call."""
        if not self._wake_set:
            self._wake_set = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        self._wake_set = False
        self._now = self._clock.now()
        for key in self._table.elders.came():
            self._unblock(key)
        while self._has_room_to_grab():
            batch: list[Trigger] = []
            take, book = self._table.take, self._book
            while len(batch) < self._limits.grab_batch:
                item = take(book)
                taken, self._preferred = self._preferred, []
                if item is not None:
                    taken.append(item.trigger)
                elif not taken:
                    break
                for trigger in taken:
                    self._enlist(trigger, batch)
            if not batch:
                return
            self._run(self._grab_and_start(batch))

    def _enlist(self, trigger: Trigger, batch: list[Trigger]) -> None:
        """Let a trigger that has left the table take part in the next grab, if it may."""
        if trigger.id in self._misjudged:
            self._run(self._park(trigger, self._misjudged.pop(trigger.id)))
        elif trigger.id in self._booked:
            # Resumed or cancelled while it runs here: its attempt is ending, and two attempts of
            # one task never overlap on a node.
            self._give_back(trigger)
            self._later[trigger.id] = trigger
        else:
            self._booked[trigger.id] = trigger
            batch.append(trigger)

    def _has_room_to_grab(self) -> bool:
        if self._is_stopping or len(self._grabs) >= self._limits.grabs_max:
            return False
        return self._may_act()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        grab = self._loop.create_task(work)
        self._grabs.add(grab)
        grab.add_done_callback(self._grab_ended)

    def _grab_ended(self, grab: asyncio.Task[None]) -> None:
        self._grabs.discard(grab)
        if not grab.cancelled() and (error := grab.exception()) is not None:
            self._events.emit(BugFound(f"a grab broke: {error!r}"))
        self._pump()

    def _runs_low(self) -> bool:
        return len(self._table) < 2 * self._limits.grab_batch

    def _book(self, trigger: Trigger) -> Full | None:
        key = trigger.ordering_key
        if key is None:
            return self._admit(trigger)
        if self._is_held(key):
            return BUSY
        elder = self._table.eldest(key)
        if elder is None or elder.id >= trigger.id:
            return self._admit(trigger)
        # Whatever stands before it, the elder goes first: only after it may this one be grabbed.
        if self._admit(elder) is None:
            self._table.remove(elder.id)
            self._preferred.append(elder)
        return BUSY

    def _admit(self, trigger: Trigger) -> Full | None:
        """A slot, and what the limits of the queue want; None: both are booked."""
        gate = self._gate
        if gate is not None and (full := gate.book(trigger)) is not None:
            return self._refused(trigger, full)
        try:
            full = self._booking.book(trigger, now=self._now)
        except Exception as error:
            # It leaves the table to be parked: it must not stop those who stand behind it.
            self._misjudged[trigger.id] = f"the booking policy failed: {error!r}"
            if gate is not None:
                gate.free(trigger, is_lost=True)
            return None
        if full is None:
            if trigger.ordering_key is not None:
                self._busy[trigger.ordering_key] = trigger.id
            return None
        if gate is not None:
            gate.free(trigger, is_lost=True)
        return self._refused(trigger, full)

    def _refused(self, trigger: Trigger, full: Full) -> Full:
        self._alarm.set(trigger, full)
        return full

    def _time_came(self, keys: Collection[str | None], is_kind_due: bool) -> None:
        """A policy refused these keys, or a whole kind, until now: they alone are asked again."""
        if is_kind_due:
            self._table.freed()
        for key in keys:
            self._release(key)
        self.wake()

    def _is_held(self, key: str | None) -> bool:
        return key in self._busy or key in self._blocked or key in self._foreign

    async def _park(self, trigger: Trigger, reason: str) -> None:
        """The policy cannot judge this trigger: a person looks, and its place is free."""
        try:
            await self._store.park({trigger.id: trigger.version}, reason)
        except Exception as error:
            self._events.emit(StoreFailed("park", str(error)))
            await asyncio.sleep(self._limits.retry_s)
            self._offer_later(trigger)
        else:
            self.intake.finished(trigger.id, trigger.version)

    # ── the grab ──────────────────────────────────────────────────────────────────────────

    async def _grab_and_start(self, batch: list[Trigger]) -> None:
        spoilt: list[Trigger] = []
        epochs = dict(self.epochs)
        grab = await self._grab(batch, spoilt)
        for trigger in spoilt:
            self._set_apart(trigger)
        apart = {trigger.id for trigger in spoilt}  # these, and no other version of their tasks
        batch = [trigger for trigger in batch if trigger.id not in apart]
        won = {task.id for task in grab.tasks}
        undecided, blocked = set(grab.undecided), set(grab.blocked)
        if self._gate is not None and undecided and len(undecided) + len(won) == len(batch):
            self._gate.doubt(batch)
        intake = self.intake
        known = intake.known
        for trigger in batch:
            id = trigger.id
            if id in won:
                version = trigger.version
                intake.decided(id, version)
                # A trigger for our own attempt is stale, unless it came while we were grabbing.
                if known.get(id, 0) <= version:
                    known[id] = version + 1
            elif id in undecided or id in blocked or self._is_outdated(trigger, epochs):
                self._put_back(trigger, is_blocked=id in blocked)
            else:
                intake.decided(id, trigger.version)
                self._lost(trigger)
        for elder in grab.elders:
            intake.found(elder)
        if self._events.wanted:
            self._tell(grab.tasks)
        if grab.tasks:
            # In the order of the table, not of the answer: the first priority starts first.
            places = {trigger.id: place for place, trigger in enumerate(batch)}
            self._start(sorted(grab.tasks, key=lambda task: places[task.id]))
        self.books.nudge()

    def _is_outdated(self, trigger: Trigger, epochs: Mapping[int, int]) -> bool:
        """Whether it was refused for an epoch that we had then, and have another one now.

        The fence is for tasks with an ordering key; those of a new owner are not ours to forget,
        and that owner may be ourselves.
        """
        number = trigger.partition
        return trigger.ordering_key is not None and epochs.get(number) != self.epochs.get(number)

    def _tell(self, tasks: Iterable[Grabbed]) -> None:
        now = self._clock.now()
        for task in tasks:
            waited_s = None
            if task.version == STRAIGHT:
                # Two clocks are compared here: a wait that seems negative was none.
                waited_s = max(0.0, (now - task.enqueued_at).total_seconds())
            self._events.emit(
                TaskGrabbed(task.id, task.version, task.kind, self._node, task.queue, waited_s)
            )

    async def _grab(
        self, batch: list[Trigger], spoilt: list[Trigger], *, repeat: bool = False
    ) -> Grab:
        """The grab, repeated until its outcome is known.

        An error that is no outage is somebody's in the batch: its halves are grabbed apart,
        until the trigger at fault stands alone and is added to `spoilt`.
        """
        epochs = self.epochs if any(t.ordering_key is not None for t in batch) else {}
        shares = self._gate.shares(batch) if self._gate is not None else ()
        back_off_s = self._limits.retry_s
        while True:
            try:
                return await self._store.grab(
                    batch,
                    node=self._node,
                    deadlines_s=self._kinds.deadlines_s,
                    epochs=epochs,
                    skip_errors_of=self._kinds.skipping_errors,
                    shares=shares,
                    repeat=repeat,
                )
            except Exception as error:
                self._events.emit(StoreFailed("grab", str(error)))
                is_outage = isinstance(error, Unavailable | SchemaError)
                if not is_outage and len(batch) == 1:
                    spoilt += batch
                    return Grab([])
                if not is_outage:
                    half = len(batch) // 2
                    first = await self._grab(batch[:half], spoilt, repeat=repeat)
                    second = await self._grab(batch[half:], spoilt, repeat=repeat)
                    return first + second
                if self._is_stopping:
                    # Whatever was won is resumed when our lease has ended.
                    return Grab([], undecided=[trigger.id for trigger in batch])
                repeat = True
                await asyncio.sleep(back_off_s)
                back_off_s = min(back_off_s * 2, self._limits.retry_s_max)
                while not (self._may_act() or self._is_stopping):  # noqa: ASYNC110
                    await asyncio.sleep(back_off_s)

    def _set_apart(self, trigger: Trigger) -> None:
        """This trigger cannot be grabbed: it gives its slot back and stands behind the others."""
        self._free(trigger.id)
        self._spoilt.add((trigger.id, trigger.version))
        self._loop.call_later(self._limits.retry_s_max, self._write_anew, trigger)
        self._offer_next(trigger.id)
        self.slot_freed()

    def _write_anew(self, trigger: Trigger) -> None:
        self._spoilt.discard((trigger.id, trigger.version))
        self.intake.write_anew(trigger)
        self.books.nudge()

    def _lost(self, trigger: Trigger) -> None:
        """Somebody else has it, or it is gone: no error, no attempt, and the slot is free."""
        if self._gate is not None:
            self._gate.free(trigger, is_lost=True)
        self.finished([trigger.id])
        if self._events.wanted:
            self._events.emit(GrabLost(trigger.id, trigger.version))

    def _put_back(self, trigger: Trigger, *, is_blocked: bool) -> None:
        """Not now: free the slot and stand behind the others until something changes."""
        if self._gate is not None:
            self._gate.free(trigger, is_lost=True)
        self._free(trigger.id)
        if is_blocked and trigger.ordering_key is not None:
            self._table.elders.await_elder(trigger.ordering_key, trigger.id)
        if trigger.partition not in self.intake.partitions and trigger.partition != ANYONE:
            self.intake.finished(trigger.id, trigger.version)  # its new owner will see it
            self._offer_next(trigger.id)
            return
        self.intake.offer_behind(trigger)
        self.slot_freed()

    # ── the end ───────────────────────────────────────────────────────────────────────────

    def finished(self, ids: Sequence[TaskId]) -> None:
        """These attempts are settled, superseded or never were: free their slots."""
        keys: set[str | None] = set()
        for id in ids:
            trigger = self._free(id)
            keys.add(trigger.fairness_key)
            self.intake.finished(id, trigger.version + 1)
            self._offer_next(id)
        self.slot_freed(keys)

    def _offer_next(self, id: TaskId) -> None:
        """This attempt stands in nobody's way any more: a later version of its task may go on."""
        if self._later and (later := self._later.pop(id, None)):
            self._offer_later(later)

    def _offer_later(self, trigger: Trigger) -> None:
        if trigger.partition in self.intake.partitions or trigger.partition == ANYONE:
            self.intake.offer_behind(trigger)
        else:
            self.intake.finished(trigger.id, trigger.version)  # its new owner will see it

    def _give_back(self, trigger: Trigger) -> None:
        self._booking.free(trigger)
        if self._gate is not None:
            self._gate.free(trigger, is_lost=True)

    def _free(self, id: TaskId) -> Trigger:
        trigger = self._booked.pop(id)
        self._booking.free(trigger)
        if self._gate is not None:
            self._gate.free(trigger)
        if self._table.charges_by_cost:
            self._table.charge(trigger, None)  # nothing, unless it never ran
        key = trigger.ordering_key
        if key is not None and self._busy.get(key) == id:
            del self._busy[key]
            self._unblock(key)
        return trigger

    def _unblock(self, key: str) -> None:
        self._blocked.pop(key, None)
        self._release(key)
