"""The client: adds tasks and asks after them.

Concurrent callers are coalesced: while one insert is on its way, whatever else is enqueued
gathers and leaves with the next, in one statement and one commit.  Each caller is answered only
after that commit, and one caller's duplicate, error or cancellation never fails another's task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from holdfast.bus import Bus
from holdfast.errors import HoldfastError, OutcomeUnknown, StoreUnavailable
from holdfast.store import Answer, Change, Changed, Store
from holdfast.task import Enqueued, Event, NewTask, State, Task, TaskId, trigger_of
from holdfast.telemetry.carrier import without_trace
from holdfast.telemetry.events import Events, TaskEnqueued

BATCH_MAX = 1_000
FLIGHTS_MAX = 2


class Client:
    """Enqueues, cancels, resumes and reads tasks of one store."""

    def __init__(self, store: Store, bus: Bus, *, events: Events) -> None:
        self._store = store
        self._bus = bus
        self._events = events
        # Keyed tasks may wait for another caller's open transaction; they never delay the rest.
        self._plain = Coalescer(self._enqueue, self._enqueue_one)
        self._keyed = Coalescer(self._enqueue, self._enqueue_one)

    @property
    def partitions(self) -> int:
        """How many partitions a queue has."""
        return self._store.partitions

    async def enqueue(self, task: NewTask) -> Enqueued:
        """Add one task; durable when it returns.  Its trigger has then been handed to the bus."""
        coalescer = self._plain if task.key is None else self._keyed
        return await coalescer.add(task)

    async def enqueue_many(self, tasks: Sequence[NewTask]) -> list[Enqueued]:
        """Add many tasks in one transaction: all or none, but for duplicates of a key."""
        return await self._enqueue(tasks)

    async def get(self, id: TaskId) -> Task | None:
        task = (await self._store.get([id])).get(id)
        if task is None or (metadata := without_trace(task.metadata)) is task.metadata:
            return task
        return replace(task, metadata=metadata)

    async def change(self, changes: Sequence[Change]) -> list[Changed]:
        """Cancel, resume, reschedule or give up tasks, and tell whoever dispatches or runs them."""
        changed = await self._store.change(changes)
        self._bus.publish([done.trigger for done in changed if done.trigger])
        return changed

    async def cancel(self, id: TaskId, *, version: int | None = None) -> Answer:
        return await self._change_one(Change(id, Event.CANCELLED, version))

    async def resume(
        self, id: TaskId, *, version: int | None = None, force: bool = False
    ) -> Answer:
        return await self._change_one(Change(id, Event.RESUMED, version, force=force))

    async def give_up(self, id: TaskId, *, version: int | None = None) -> Answer:
        return await self._change_one(Change(id, Event.GIVEN_UP, version))

    async def reschedule(self, id: TaskId, *, delay_s: float, version: int | None = None) -> Answer:
        return await self._change_one(Change(id, Event.RESCHEDULED, version, delay_s))

    async def close(self) -> None:
        """Wait for the inserts that are under way."""
        await self._plain.settled()
        await self._keyed.settled()

    async def _change_one(self, change: Change) -> Answer:
        (changed,) = await self.change([change])
        return changed.answer

    async def _enqueue(self, tasks: Sequence[NewTask]) -> list[Enqueued]:
        enqueued = await self._store.enqueue(tasks)
        created = [(t, e) for t, e in zip(tasks, enqueued, strict=True) if e.created]
        self._bus.publish([trigger_of(task, answer) for task, answer in created])
        if self._events.wanted:
            for task, answer in created:
                self._events.emit(TaskEnqueued(answer.id, task.queue, task.kind))
        return enqueued

    async def _enqueue_one(self, task: NewTask) -> Enqueued:
        """The same for one: a caller that awaits each task feels every step."""
        (enqueued,) = await self._store.enqueue([task])
        if enqueued.created:
            self._bus.publish([trigger_of(task, enqueued)])
            if self._events.wanted:
                self._events.emit(TaskEnqueued(enqueued.id, task.queue, task.kind))
        return enqueued


Insert = Callable[[Sequence[NewTask]], Awaitable[list[Enqueued]]]
InsertOne = Callable[[NewTask], Awaitable[Enqueued]]


class Coalescer:
    """Gathers what concurrent callers add while earlier inserts are on their way."""

    def __init__(self, insert: Insert, insert_one: InsertOne) -> None:
        self._insert = insert
        self._insert_one = insert_one
        self._waiting: list[tuple[NewTask, asyncio.Future[Enqueued]]] = []
        self._flights: set[asyncio.Task[None]] = set()
        self._alone = 0  # callers who insert by themselves, because nobody else is there

    async def add(self, task: NewTask) -> Enqueued:
        if not self._waiting and not self._flights and not self._alone:
            # A single caller pays for no gathering: its insert is its own.
            self._alone += 1
            try:
                return await self._insert_one(task)
            finally:
                self._alone -= 1
                if self._waiting:
                    self._launch()
        future: asyncio.Future[Enqueued] = asyncio.get_running_loop().create_future()
        self._waiting.append((task, future))
        if self._alone + len(self._flights) < FLIGHTS_MAX and len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._launch)
        return await future

    async def settled(self) -> None:
        while self._flights:
            await asyncio.wait(self._flights)

    def _launch(self) -> None:
        while self._waiting and self._alone + len(self._flights) < FLIGHTS_MAX:
            batch, self._waiting = self._waiting[:BATCH_MAX], self._waiting[BATCH_MAX:]
            flight = asyncio.get_running_loop().create_task(self._fly(batch))
            self._flights.add(flight)
            flight.add_done_callback(self._landed)

    def _landed(self, flight: asyncio.Task[None]) -> None:
        self._flights.discard(flight)
        self._launch()

    async def _fly(self, batch: list[tuple[NewTask, asyncio.Future[Enqueued]]]) -> None:
        batch = [(task, future) for task, future in batch if not future.cancelled()]
        try:
            enqueued = await self._insert([task for task, _ in batch])
        except (StoreUnavailable, OutcomeUnknown) as error:
            # The whole batch met the same fate; repeating it could add tasks twice.
            for task, future in batch:
                _refuse(future, _for_one(error, task))
        except Exception as error:
            if len(batch) == 1:
                _refuse(batch[0][1], error)
                return
            for one in batch:  # somebody's task is at fault: only that caller hears of it
                await self._fly([one])
        else:
            for (_, future), answer in zip(batch, enqueued, strict=True):
                if not future.done():
                    future.set_result(answer)


def _refuse(future: asyncio.Future[Enqueued], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


def _for_one(error: HoldfastError, task: NewTask) -> HoldfastError:
    """The batch's error as it reads for one of its callers."""
    if isinstance(error, OutcomeUnknown):
        return unknown_outcome(has_key=task.key is not None, cause=error)
    return type(error)(str(error))


def unknown_outcome(*, has_key: bool, cause: BaseException) -> OutcomeUnknown:
    safe = (
        "repeat it: its key makes sure that there is only one"
        if has_key
        else "a repeat may add it a second time; give it a unique key to make repeats safe"
    )
    error = OutcomeUnknown(
        f"the connection broke during the commit, so the task may or may not exist; {safe}",
        repeat_is_safe=has_key,
    )
    error.__cause__ = cause
    return error


def is_settled(state: State) -> bool:
    """Whether nothing more will happen to the task by itself."""
    return state not in (State.WAITING, State.SUBMITTED, State.PROCESSING)
