"""The ceiling: what the store can do when nothing is decided and nothing is run.

The same verbs as the engine calls, with its batch sizes, and as many calls under way at once: one
reader that keeps the books, three grabs, one settle.

    arrivals ─▶ record (append, position) ─▶ levels ─▶ 3 grabs ─▶ settle ─▶ archive
                                                         └──▶ record (range delete)
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import count

from holdfast.bench.load import QUEUE
from holdfast.clock import Clock
from holdfast.dispatch.limits import Limits
from holdfast.ids import NodeId
from holdfast.store import (
    START,
    ZERO,
    Column,
    Cursor,
    Entry,
    Level,
    LevelCursor,
    Mark,
    Position,
    Record,
    Store,
)
from holdfast.task import PRIORITY_DEFAULT, Event, Outcome, Trigger
from holdfast.worker.settler import BATCH_MAX as SETTLE_BATCH

NODE = NodeId("ceiling")
COLUMN = Column(PRIORITY_DEFAULT, "noop")
DEADLINES_S = {"noop": 3_600.0}
LIMITS = Limits()


async def ceiling(store: Store, tasks: int, *, clock: Clock) -> tuple[float, int]:
    """The rate, and how many tasks were settled: all that stand in the store's queue."""
    started = clock.seconds()
    flow = _Flow(store, tasks)
    await flow.claim()
    async with asyncio.TaskGroup() as group:
        group.create_task(flow.keep_books())
        for _ in range(LIMITS.grabs_max):
            group.create_task(flow.keep_grabbing())
        group.create_task(flow.keep_settling())
    await flow.trim(at_least=1)
    return flow.settled / (clock.seconds() - started), flow.settled


@dataclass(slots=True)
class _Line:
    """One partition: how far it was read, appended, grabbed and trimmed."""

    epoch: int
    position: Position = START
    read: Level = ZERO
    acked: Level = ZERO
    trimmed: Level = ZERO
    acked_since: int = 0


@dataclass(slots=True)
class _Batch:
    """Triggers of one grab, in the order in which they were read."""

    entries: list[Entry] = field(default_factory=list)
    is_decided: bool = False


class _Flow:
    def __init__(self, store: Store, tasks: int) -> None:
        self.settled = 0
        self._store = store
        self._tasks = tasks
        self._lines: dict[int, _Line] = {}
        self._seq = count(1)
        # As many as the engine looks ahead; the reader waits for room.
        self._batches: asyncio.Queue[_Batch | None] = asyncio.Queue(
            LIMITS.look_ahead // LIMITS.grab_batch
        )
        self._undecided: list[_Batch] = []
        self._next = _Batch()
        self._outcomes: asyncio.Queue[Outcome | None] = asyncio.Queue()
        self._grabbers = LIMITS.grabs_max

    async def claim(self) -> None:
        wanted = {each.partition: each.epoch for each in await self._store.holdings(QUEUE)}
        epochs = await self._store.claim(QUEUE, wanted, node=NODE)
        self._lines = {number: _Line(epoch) for number, epoch in epochs.items()}
        assert len(self._lines) == self._store.partitions, "a fresh store belongs to nobody"
        await self._store.load(QUEUE, list(self._lines))

    async def keep_books(self) -> None:
        """Read, append, read back: until all tasks are on their way to a grab."""
        limit = max(1, LIMITS.page // len(self._lines))
        seen = 0
        while seen < self._tasks:
            cursors = [Cursor(number, line.position) for number, line in self._lines.items()]
            page = await self._store.arrivals(QUEUE, cursors, limit=limit, exact=True)
            if not page.triggers:
                # Right after a commit the horizon may still lie below it.
                await asyncio.sleep(0.001)
                continue
            seen += len(page.triggers)
            await self._append(page.triggers)
            await self._read_back()
            await self.trim(at_least=LIMITS.trim_count)
        await self._hand_over()
        for _ in range(LIMITS.grabs_max):
            await self._batches.put(None)

    async def _append(self, triggers: list[Trigger]) -> None:
        rows: dict[int, list[Entry]] = defaultdict(list)
        for trigger in triggers:
            seq = next(self._seq)
            rows[trigger.partition].append(Entry(Level(seq, seq), trigger))
        records = []
        for number, entries in rows.items():
            line, last = self._lines[number], entries[-1].trigger
            line.position = Position(last.arrived, last.id)
            marks = {COLUMN: Mark(line.acked, line.acked.pass_)}
            records.append(
                Record(
                    partition=number,
                    epoch=line.epoch,
                    entries=entries,
                    position=line.position,
                    marks=marks,
                )
            )
        refused = await self._store.record(QUEUE, records)
        assert not refused, "nobody else owns these partitions"

    async def _read_back(self) -> None:
        cursors = [
            LevelCursor(number, COLUMN, line.read, LIMITS.window)
            for number, line in self._lines.items()
        ]
        pages = await self._store.levels(QUEUE, cursors)
        for line, entries in zip(self._lines.values(), pages, strict=True):
            for entry in entries:
                line.read = entry.level
                self._next.entries.append(entry)
                if len(self._next.entries) == LIMITS.grab_batch:
                    await self._hand_over()

    async def _hand_over(self) -> None:
        if self._next.entries:
            batch, self._next = self._next, _Batch()
            self._undecided.append(batch)
            await self._batches.put(batch)

    async def keep_grabbing(self) -> None:
        while (batch := await self._batches.get()) is not None:
            triggers = [entry.trigger for entry in batch.entries]
            grab = await self._store.grab(triggers, node=NODE, deadlines_s=DEADLINES_S, epochs={})
            assert len(grab.tasks) == len(triggers), "nobody competes for these tasks"
            batch.is_decided = True
            self._ack()
            for task in grab.tasks:
                self._outcomes.put_nowait(Outcome(task.id, task.version, Event.SUCCEEDED))
        self._grabbers -= 1
        if self._grabbers == 0:
            self._outcomes.put_nowait(None)

    def _ack(self) -> None:
        """Grabs end in any order; a partition is acked only as far as all before are decided."""
        while self._undecided and self._undecided[0].is_decided:
            for entry in self._undecided.pop(0).entries:
                line = self._lines[entry.trigger.partition]
                line.acked = entry.level
                line.acked_since += 1

    async def keep_settling(self) -> None:
        is_over = False
        while not is_over:
            outcomes: list[Outcome] = []
            found = await self._outcomes.get()
            while found is not None:
                outcomes.append(found)
                if len(outcomes) == SETTLE_BATCH or self._outcomes.empty():
                    break
                found = self._outcomes.get_nowait()
            is_over = found is None
            if outcomes:
                accepted = await self._store.settle(outcomes, node=NODE)
                self.settled += sum(accepted)

    async def trim(self, *, at_least: int) -> None:
        """Delete the ranges that were acked since the last time, where it is worth it."""
        due = [each for each in self._lines.items() if each[1].acked_since >= at_least]
        if not due:
            return
        records = [
            Record(
                partition=number,
                epoch=line.epoch,
                marks={COLUMN: Mark(line.acked, line.acked.pass_)},
                trims={COLUMN: (line.trimmed, line.acked)},
            )
            for number, line in due
        ]
        for _, line in due:
            line.trimmed, line.acked_since = line.acked, 0
        refused = await self._store.record(QUEUE, records)
        assert not refused, "nobody else owns these partitions"
