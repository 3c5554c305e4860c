"""The settler: records outcomes in batches, one batch on its way at a time.

Outcomes that end while a batch is under way gather for the next, so the busier the node, the
larger its batches.  A batch that fails because the store does is repeated until it is known:
settling is safe to repeat.  When the store refuses a batch for its contents, its outcomes are
recorded one by one, and the one at fault is parked with the reason: nobody waits for it.

If the process dies before the record, the lease ends and the task is submitted again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from holdfast.errors import HoldfastError, Refused
from holdfast.ids import NodeId
from holdfast.store import Tasks
from holdfast.task import Grabbed, Outcome
from holdfast.telemetry.events import BugFound, Events, SettleRefused, StoreFailed, TaskSettled
from holdfast.worker import verdict

BATCH_MAX = 500
BACK_OFF_S = 0.05
BACK_OFF_S_MAX = 5.0
REPEATS_OF_BUG_MAX = 5


class Ended(NamedTuple):
    """An attempt that has ended, with its outcome."""

    task: Grabbed
    outcome: Outcome
    ran_s: float
    frees: bool = True  # False: a thread still runs, so the slot stays booked


Settled = Callable[[Sequence[Ended]], None]


class Settler:
    """Settles what ended, then says so.  `settled` is called once for each attempt."""

    def __init__(self, store: Tasks, *, node: NodeId, settled: Settled, events: Events) -> None:
        self._store = store
        self._node = node
        self._settled = settled
        self._events = events
        self._waiting: list[Ended] = []
        self._flight: asyncio.Task[None] | None = None

    def add(self, ended: Ended) -> None:
        self._waiting.append(ended)
        if self._flight is None:
            self._flight = asyncio.get_running_loop().create_task(self._fly())

    @property
    def pending(self) -> int:
        return len(self._waiting) + (self._flight is not None)

    def tell(self, ended: Ended, *, accepted: bool) -> None:
        """Say what the handler's own transaction recorded, or that it was refused there."""
        self._tell([ended], [accepted])

    async def flushed(self) -> None:
        """Wait until everything that was added is recorded."""
        while self._flight is not None:
            await asyncio.wait([self._flight])

    async def _fly(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:BATCH_MAX], self._waiting[BATCH_MAX:]
                accepted = await self._record(batch)
                try:
                    self._tell(batch, accepted)
                    self._settled(batch)
                except Exception as error:
                    # One wrong count or listener must not stop the recording of all others.
                    self._events.emit(BugFound(f"after a settle: {error!r}"))
        finally:
            self._flight = None

    async def _record(self, batch: Sequence[Ended]) -> list[bool]:
        back_off_s, bugs = BACK_OFF_S, 0
        while True:
            try:
                return await self._store.settle([e.outcome for e in batch], node=self._node)
            except Exception as error:
                self._events.emit(StoreFailed("settle", str(error)))
                # What is not the store's own trouble comes from a value that it cannot take.
                bugs += isinstance(error, Refused) or not isinstance(error, HoldfastError | OSError)
                if bugs and (len(batch) > 1 or bugs >= REPEATS_OF_BUG_MAX):
                    return await self._record_apart(batch, error)
            await asyncio.sleep(back_off_s)
            back_off_s = min(back_off_s * 2, BACK_OFF_S_MAX)

    async def _record_apart(self, batch: Sequence[Ended], error: Exception) -> list[bool]:
        if len(batch) > 1:
            return [(await self._record([ended]))[0] for ended in batch]
        task = batch[0].task
        plain = verdict.parked(task, f"its outcome could not be recorded ({type(error).__name__})")
        if batch[0].outcome == plain:
            return [False]  # the deadline of the task and the resumer are left
        return await self._record([batch[0]._replace(outcome=plain)])

    def _tell(self, batch: Sequence[Ended], accepted: Sequence[bool]) -> None:
        for ended, is_accepted in zip(batch, accepted, strict=True):
            task, outcome = ended.task, ended.outcome
            if not is_accepted:
                self._events.emit(SettleRefused(task.id, task.version, task.kind))
            elif self._events.wanted:
                event, ran_s = outcome.event.name, ended.ran_s
                self._events.emit(
                    TaskSettled(task.id, task.version, task.kind, event, ran_s, task.queue)
                )
