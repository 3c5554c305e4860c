"""The settler: records outcomes in batches, one batch on its way at a time.

Outcomes that end while a batch is under way gather for the next, so the busier the node, the
larger its batches.  A batch that fails is repeated until it is known: settling is safe to repeat.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from holdfast.ids import NodeId
from holdfast.store import Tasks
from holdfast.task import Grabbed, Outcome
from holdfast.telemetry.events import Events, SettleRefused, StoreFailed, TaskSettled

BATCH_MAX = 500
BACK_OFF_S = 0.05
BACK_OFF_S_MAX = 5.0


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

    def tell(self, ended: Ended) -> None:
        """Say that an outcome was recorded elsewhere: in the handler's own transaction."""
        self._tell([ended], [True])

    async def flushed(self) -> None:
        """Wait until everything that was added is recorded."""
        while self._flight is not None:
            await asyncio.wait([self._flight])

    async def _fly(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:BATCH_MAX], self._waiting[BATCH_MAX:]
                accepted = await self._record([ended.outcome for ended in batch])
                self._tell(batch, accepted)
                self._settled(batch)
        finally:
            self._flight = None

    async def _record(self, outcomes: list[Outcome]) -> list[bool]:
        back_off_s = BACK_OFF_S
        while True:
            try:
                return await self._store.settle(outcomes, node=self._node)
            except Exception as error:
                self._events.emit(StoreFailed("settle", str(error)))
                await asyncio.sleep(back_off_s)
                back_off_s = min(back_off_s * 2, BACK_OFF_S_MAX)

    def _tell(self, batch: Sequence[Ended], accepted: Sequence[bool]) -> None:
        for ended, is_accepted in zip(batch, accepted, strict=True):
            task, outcome = ended.task, ended.outcome
            if not is_accepted:
                self._events.emit(SettleRefused(task.id, task.version))
            elif self._events.wanted:
                self._events.emit(
                    TaskSettled(task.id, task.version, task.kind, outcome.event.name, ended.ran_s)
                )
