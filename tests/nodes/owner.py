"""One partition owner on a real store, without a node around it, to be watched and paused."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from random import Random
from typing import Any

from holdfast.booking import Full
from holdfast.clock import Clock, SystemClock
from holdfast.dispatch.dispatcher import Dispatcher
from holdfast.dispatch.limits import Limits
from holdfast.dispatch.table import TriggerTable
from holdfast.errors import Unavailable
from holdfast.ids import NodeId
from holdfast.store import Grab, Record, Store
from holdfast.task import Event, Grabbed, NewTask, Outcome, TaskId, Trigger
from holdfast.telemetry.events import Events
from holdfast.testing.recorder import Recorder

QUEUE = "default"


class AnyKind:
    deadlines_s: dict[str, float] = {"email": 60.0}  # noqa: RUF012
    skipping_errors: frozenset[str] = frozenset()

    def handles(self, kind: str) -> bool:
        return True


class Allowance:
    """Slots for `slots_max` at once, and for `left` in all until more are granted."""

    def __init__(self, slots_max: int) -> None:
        self.slots_max = slots_max
        self.left = 1_000_000 if slots_max else 0
        self.taken = 0
        self.refused: set[str | None] = set()  # fairness keys that may not go on

    def book(self, trigger: Trigger, *, now: datetime) -> Full | None:
        if trigger.fairness_key in self.refused:
            return Full(key_only=True)
        if not self.left or self.taken >= max(self.slots_max, 1):
            return Full()
        self.left -= 1
        self.taken += 1
        return None

    def free(self, trigger: Trigger) -> None:
        assert self.taken > 0
        self.taken -= 1


class Watched:
    """A store that remembers what was recorded, and can hold back what is about to be sent."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.records: list[Record] = []  # accepted ones
        self.may_record = asyncio.Event()
        self.may_record.set()
        self.grabs = 0  # that were asked for
        self.may_grab = asyncio.Event()
        self.may_grab.set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    @property
    def appended(self) -> Counter[tuple[TaskId, int]]:
        """How often each version of a task was written to a backlog."""
        entries = [entry for record in self.records for entry in record.entries]
        return Counter((entry.trigger.id, entry.trigger.version) for entry in entries)

    async def grab(self, triggers: Sequence[Trigger], **options: Any) -> Grab:
        self.grabs += 1
        await self.may_grab.wait()
        return await self._store.grab(triggers, **options)

    async def record(self, queue: str, records: Sequence[Record]) -> set[int]:
        await self.may_record.wait()
        refused = await self._store.record(queue, records)
        self.records += [one for one in records if one.partition not in refused]
        return refused


class Owner:
    """Dispatches partitions; attempts are held until `release`, then settled as done."""

    def __init__(
        self,
        store: Store,
        name: str,
        *,
        slots: int = 1_000,
        clock: Clock | None = None,
        **limits: Any,
    ) -> None:
        self.store = Watched(store)
        self.id = NodeId(name)
        self.grabbed: list[Grabbed] = []
        self.settled: list[bool] = []
        self.slots = Allowance(slots)
        self.heard = Recorder(events := Events())
        chosen = {"idle_wait_s": 0.2, "exact_s": 0.05, "retry_s": 0.01} | limits
        self.limits = Limits(**chosen)
        self.dispatcher = Dispatcher(
            QUEUE,
            node=self.id,
            store=self.store,  # type: ignore[arg-type]
            table=TriggerTable(size_max=self.limits.look_ahead, rng=Random(0)),
            booking=self.slots,
            kinds=AnyKind(),
            start=self._start,
            clock=clock or SystemClock(),
            events=events,
            limits=self.limits,
        )
        self._held: list[Grabbed] = []
        self._is_open = False
        self._settles: set[asyncio.Task[None]] = set()
        self._books: asyncio.Task[None] | None = None

    async def take(self, partitions: Sequence[int]) -> dict[int, int]:
        """Claim the partitions, load them and begin; answers their epochs."""
        seen = {one.partition: one.epoch for one in await self.store.holdings(QUEUE)}
        wanted = {number: seen[number] for number in partitions}
        epochs = await self.store.claim(QUEUE, wanted, node=self.id)
        for loaded in await self.store.load(QUEUE, list(epochs)):
            self.dispatcher.take(loaded, epochs[loaded.partition])
        self.go()
        return epochs

    def go(self) -> None:
        if self._books is None:
            self._books = asyncio.create_task(self.dispatcher.books.keep())

    async def kill(self) -> None:
        """Nothing more is written, as after kill -9; attempts are not settled.  May be repeated."""
        await self.dispatcher.stop()
        books, self._books = self._books, None
        if books is not None:
            books.cancel()
            await asyncio.gather(books, return_exceptions=True)
        await asyncio.gather(*self._settles)

    async def run(self, count: int) -> None:
        """Start and finish exactly so many of what waits, one after the other."""
        target = len(self.grabbed) + count
        self.release()
        self.slots.left += count
        self.dispatcher.slot_freed()
        async with asyncio.timeout(10):
            while len(self.grabbed) < target or self.dispatcher.in_flight:
                await asyncio.sleep(0.002)

    def open_up(self) -> None:
        """From now on there is room for everything."""
        self.slots.slots_max = self.slots.left = 1_000_000
        self.release()
        self.dispatcher.slot_freed()

    def release(self) -> None:
        """Settle what is held, and everything later at once."""
        self._is_open = True
        self._start([])

    @property
    def ids(self) -> list[TaskId]:
        return [task.id for task in self.grabbed]

    @property
    def remembered(self) -> int:
        partitions = self.dispatcher.intake.partitions.values()
        return max((len(one.remembered) for one in partitions), default=0)

    def _start(self, tasks: Sequence[Grabbed]) -> None:
        self.grabbed += tasks
        self._held += tasks
        if self._is_open and self._held:
            held, self._held = self._held, []
            settle = asyncio.create_task(self._settle(held))
            self._settles.add(settle)
            settle.add_done_callback(self._settles.discard)

    async def _settle(self, tasks: list[Grabbed]) -> None:
        outcomes = [Outcome(task.id, task.version, Event.SUCCEEDED) for task in tasks]
        while True:
            try:
                self.settled += await self.store.settle(outcomes, node=self.id)
                break
            except Unavailable:  # safe to repeat
                await asyncio.sleep(0.01)
        self.dispatcher.finished([task.id for task in tasks])


def a_task(**facts: Any) -> NewTask:
    fields: dict[str, Any] = {"queue": QUEUE, "partition": 0, "kind": "email", "payload": b"hello"}
    return NewTask(**(fields | facts))


async def enqueued(store: Store, count: int, **facts: Any) -> list[TaskId]:
    return [one.id for one in await store.enqueue([a_task(**facts) for _ in range(count)])]
