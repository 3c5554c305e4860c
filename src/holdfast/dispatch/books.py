"""The books: positions and backlogs of one queue, kept in the store by one loop.

Only this loop appends, so one append is in flight per column, and no column is read meanwhile: a
read would bring the younger half of an append before the rest.  Each turn does what is due:

    early read   visible rows above E, when the doorbell rang or at the idle wait
    append       what may not skip the backlog
    exact read   rows above P and below the horizon; appends them and moves P with them
    level read   columns whose window has run low
    trim         deletes what is acked, and persists the ack levels with it

A failed call changes nothing here and is repeated after a back-off; a refused one means that
another node owns the partition now, and it is let go of.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import chain

from holdfast.clock import Clock
from holdfast.dispatch.backlog import Merged
from holdfast.dispatch.intake import Intake, Part, Partition
from holdfast.store import (
    Arrivals,
    Backlogs,
    Column,
    Counters,
    Cursor,
    LevelCursor,
    Mark,
    Position,
    Record,
)
from holdfast.task import Trigger
from holdfast.telemetry.events import Events, PartitionLost, StoreFailed


class Books:
    """Keeps one queue's books while its dispatcher runs."""

    def __init__(
        self,
        store: Backlogs,
        intake: Intake,
        *,
        clock: Clock,
        events: Events,
        offered: Callable[[], None],
        runs_low: Callable[[], bool],
    ) -> None:
        self._store = store
        self._intake = intake
        self._limits = intake.limits
        self._clock = clock
        self._events = events
        self._offered = offered  # called when the table may have something new
        self._runs_low = runs_low  # whether the table will soon have nothing left to start
        self._wake = asyncio.Event()
        self._rang = False
        self._lacked_room = False  # somebody found no room: an early read at the next turn
        self._exact_at = 0.0
        self._trim_at = clock.seconds() + self._limits.trim_s
        self._open: set[int] = set()  # transactions that early reads found open
        self._is_behind = True  # the last exact page was full: there is more above P

    def ring(self) -> None:
        """The doorbell: somebody committed a task of this queue."""
        self._rang = True
        self._wake.set()

    def refused(self) -> None:
        """Triggers found no room here: their rows are read once something was written or started.

        They are not looked for sooner, or each of them would cost a read in vain.
        """
        self._lacked_room = True

    def nudge(self) -> None:
        """Something in memory changed that the books may have to write or read."""
        self._wake.set()

    def took(self) -> None:
        """A partition was taken: catch up before anything else."""
        self._is_behind = True
        self._exact_at = 0.0
        self.ring()

    @property
    def is_behind(self) -> bool:
        """Whether there are arrivals that were not read for want of room or time."""
        return self._is_behind or self._lacked_room

    async def keep(self) -> None:
        """Run until cancelled."""
        back_off_s = self._limits.retry_s
        while True:
            try:
                rest_s = await self._turn()
                back_off_s = self._limits.retry_s
            except Exception as error:  # the store is away: nothing is lost, try again
                self._events.emit(StoreFailed("books", str(error)))
                rest_s, back_off_s = back_off_s, min(back_off_s * 2, self._limits.retry_s_max)
                await asyncio.sleep(rest_s)
                continue
            if rest_s > 0:
                await self._rest(rest_s)
            else:
                await asyncio.sleep(0)

    async def _rest(self, rest_s: float) -> None:
        try:
            async with asyncio.timeout(rest_s):
                await self._wake.wait()
        except TimeoutError:
            self._rang = True  # the idle wait is over: look whether a trigger was lost
        self._wake.clear()

    async def _turn(self) -> float:
        """One turn; answers how long to rest unless somebody wakes us."""
        self._wake.clear()
        if not self._intake.partitions:
            return self._limits.idle_wait_s
        more = False
        if (self._rang or self._lacked_room) and not self._is_behind:
            self._rang = self._lacked_room = False
            more = await self._read_early()
        now = self._clock.seconds()
        spill_s = self._intake.stored.spill(now)
        self._intake.merge(self._intake.stored.unload())
        has_written = await self._append()
        await self._read_levels()
        rest_s = self._limits.idle_wait_s
        now = self._clock.seconds()
        if now >= self._exact_at or (self._is_behind and self._is_hungry()):
            await self._read_exact()
            await self._read_levels()
            took_s = self._clock.seconds() - now
            self._offered()
            await asyncio.sleep(0)  # what may not go on goes to its lane when it is asked for
            rest_s = self._rest_after_exact(took_s)
            self._exact_at = self._clock.seconds() + rest_s
        await self._trim()
        self._intake.offer_again()
        self._offered()
        if more or self._wants_turn() or (self._rang and not self._is_behind):
            return 0.0
        if has_written and self._lacked_room and not self._is_behind:
            return 0.0  # what was written has made room
        if spill_s is not None:
            rest_s = min(rest_s, spill_s)
        return max(0.0, min(self._exact_at - self._clock.seconds(), rest_s))

    def _rest_after_exact(self, took_s: float) -> float:
        if self._is_behind:
            if self._is_hungry():
                return 0.0
            share = self._limits.ingest_share
            return took_s * (1 - share) / share
        dirty = any(p.is_dirty for p in self._intake.partitions.values())
        return self._limits.exact_s if dirty else self._limits.idle_wait_s

    def _is_hungry(self) -> bool:
        """Whether there will soon be nothing to start: what is held back in lanes is no work."""
        if self._runs_low():
            return True
        startable = len(self._intake.table) - self._intake.stored.held_back
        return startable < 2 * self._limits.grab_batch

    def _wants_turn(self) -> bool:
        return self._intake.stored.wants_turn or any(
            p.unwritten or any(backlog.wants_read for backlog in p.columns.values())
            for p in self._intake.partitions.values()
        )

    # ── reads ─────────────────────────────────────────────────────────────────────────────

    async def _read_early(self) -> bool:
        """Take in visible rows above E; True when there may be more."""
        partitions = list(self._intake.partitions.values())
        if not partitions:
            return False
        limit = min(self._limits.page, self._intake.room) // len(partitions)
        if limit < 1:
            self._lacked_room = True
            return False
        cursors = [Cursor(p.number, p.early) for p in partitions]
        page = await self._arrivals(cursors, limit=limit, exact=False)
        has_room = self._intake.read_early(page.triggers)
        ended, self._open = self._open - page.open, self._open | page.open
        if ended:
            has_room = await self._read_late(partitions, ended, limit) and has_room
        self._offered()
        is_full = len(page.triggers) >= limit
        self._lacked_room |= not has_room
        self._rang |= is_full and has_room
        return is_full and has_room

    async def _read_late(
        self, partitions: Sequence[Partition], ended: Iterable[int], limit: int
    ) -> bool:
        """Rows of transactions that were open at an earlier read: E has passed their numbers.

        The exact read would find them, but not while an older transaction is still open.
        """
        for number in sorted(ended):
            at = dict.fromkeys((p.number for p in partitions), Position(number, 0))
            while at:
                cursors = [Cursor(n, position, number + 1) for n, position in at.items()]
                page = await self._arrivals(cursors, limit=limit, exact=False)
                if self._intake.hear(page.triggers):
                    return False  # the number stays, and is read again when there is room
                lines = _lines(page.triggers)
                at = {
                    n: Position(number, line[-1].id)
                    for n, line in lines.items()
                    if len(line) >= limit
                }
            self._open.discard(number)
        return True

    async def _read_exact(self) -> None:
        """Append what lies above P and below the horizon, and move P with it."""
        intake, limits = self._intake, self._limits
        partitions = list(intake.partitions.values())
        if not partitions:
            return
        limit = max(1, limits.page // len(partitions))
        cursors = [Cursor(p.number, p.position) for p in partitions]
        page = await self._arrivals(cursors, limit=limit, exact=True)
        rows = _lines(page.triggers)
        self._is_behind = any(len(line) >= limit for line in rows.values())
        lines: list[tuple[Partition, list[Trigger]]] = []
        positions: list[Position | None] = []
        for partition in partitions:
            if partition.number not in intake.partitions:
                continue
            line = rows.get(partition.number, [])
            position = self._next_position(partition, line, limit, page.horizon)
            missing = intake.unknown_rows(partition, line)
            if missing or position is not None:
                lines.append((partition, missing))
                positions.append(position)
        await self._record(lines, positions, early=False)

    async def _arrivals(self, cursors: Sequence[Cursor], *, limit: int, exact: bool) -> Arrivals:
        with self._intake.reading():
            return await self._store.arrivals(self._intake.queue, cursors, limit=limit, exact=exact)

    def _next_position(
        self, partition: Partition, line: Sequence[Trigger], limit: int, horizon: int
    ) -> Position | None:
        if len(line) >= limit:
            return Position(line[-1].arrived, line[-1].id)
        # An empty page moves P too, past the rows that came and went; else every read crosses them.
        is_dirty, partition.is_dirty = partition.is_dirty, False
        position = Position(horizon, 0)
        return position if (line or is_dirty) and position > partition.position else None

    async def _read_levels(self) -> None:
        """Fill the windows that have run low."""
        partitions = dict(self._intake.partitions)
        wanted = [
            (p.number, column, backlog)
            for p in partitions.values()
            for column, backlog in p.columns.items()
            if backlog.wants_read
        ]
        lanes = self._intake.stored.to_read()
        wanted += lanes
        if not wanted:
            return
        cursors = [
            LevelCursor(number, column, *backlog.start_read()) for number, column, backlog in wanted
        ]
        try:
            pages = await self._store.levels(self._intake.queue, cursors)
        except BaseException:
            for _, _, backlog in wanted:
                backlog.read_failed()
            for number, column, _ in lanes:
                self._intake.stored.was_read(number, column)
            raise
        merges = [
            (backlog, backlog.read(entries))
            for (number, _, backlog), entries in zip(wanted, pages, strict=True)
            if self._owns(partitions[number])
        ]
        self._intake.merge(merges)
        for number, column, _ in lanes:
            self._intake.stored.was_read(number, column)
        self._offered()

    # ── writes ────────────────────────────────────────────────────────────────────────────

    async def _append(self) -> bool:
        """Write what may not skip the backlog; True when there was something."""
        lines: list[tuple[Partition, list[Trigger]]] = []
        for partition in self._intake.partitions.values():
            if partition.unwritten:
                lines.append((partition, list(partition.unwritten.values())))
                partition.unwritten.clear()
                partition.awaiting.clear()
        await self._record(lines, [None] * len(lines), early=True)
        return bool(lines)

    async def _record(
        self,
        lines: Sequence[tuple[Partition, list[Trigger]]],
        positions: Sequence[Position | None],
        *,
        early: bool,
    ) -> None:
        """Append each partition's line and move its position, all in one transaction."""
        if not lines:
            return
        chosen = self._intake.choose(lines)
        moves = [
            (partition, parts, position)
            for (partition, _), parts, position in zip(lines, chosen, positions, strict=True)
        ]
        records = [
            Record(
                partition=partition.number,
                epoch=partition.epoch,
                entries=[entry for part in parts for entry in part.entries],
                position=position,
                marks=_marks_of(parts),
            )
            for partition, parts, position in moves
        ]
        try:
            refused = await self._store.record(self._intake.queue, records)
        except BaseException:
            for partition, parts, _ in moves:
                if not self._owns(partition):
                    continue
                self._intake.append_failed(partition, parts)
                written = chain.from_iterable(part.entries for part in parts)
                if any(entry.trigger.id in partition.anew for entry in written):
                    self._lose(partition)
            raise
        merges: list[Merged] = []
        for partition, parts, position in moves:
            if partition.number in refused:
                self._lose(partition)
                continue
            if not self._owns(partition):
                continue
            if position is not None:
                partition.moved_to(position)
            merges += self._intake.appended(partition, parts, early=early)
        self._intake.merge(merges)

    async def _trim(self) -> None:
        """Delete acked entries by number or by time, and persist the ack levels with it."""
        now = self._clock.seconds()
        by_time = now >= self._trim_at
        if by_time:
            self._trim_at = now + self._limits.trim_s
            self._intake.fit()
        records, trimmed = [], []
        busiest: dict[Column, Counters] = {}
        lanes = self._intake.stored.trims(now)
        partitions = dict(self._intake.partitions)
        for partition in partitions.values():
            trims = {}
            for column, backlog in partition.columns.items():
                is_due = by_time or backlog.acked_since_trim >= self._limits.trim_count
                if is_due and (span := backlog.trim()):
                    trims[column] = span
                    trimmed.append((partition.number, backlog, span[1]))
            counters = self._counters_of(partition, busiest) if by_time else {}
            marks = {column: partition.columns[column].mark for column in trims}
            trims |= {c: span for (number, c), span in lanes.items() if number == partition.number}
            if trims or counters:
                records.append(
                    Record(
                        partition=partition.number,
                        epoch=partition.epoch,
                        trims=trims,
                        marks=marks,
                        counters=counters,
                    )
                )
        if not records:
            return
        try:
            refused = await self._store.record(self._intake.queue, records)
        except BaseException:
            self._intake.stored.trim_failed(lanes)
            raise
        for number in refused:
            self._lose(partitions[number])
        for number, backlog, level in trimmed:
            if number not in refused:
                backlog.trimmed(level)
        for place, (_, level) in lanes.items():
            if self._owns(partitions[place[0]]):
                self._intake.stored.trimmed(place, level)

    def _counters_of(
        self, partition: Partition, busiest: dict[Column, Counters]
    ) -> dict[Column, Counters]:
        """What is worth persisting: the counters that have changed.

        `busiest` collects those of each column, which all partitions share.
        """
        found: dict[Column, Counters] = {}
        for column, backlog in partition.columns.items():
            if column not in busiest:
                passes = self._intake.table.passes(column.priority, column.kind)
                busiest[column] = passes.busiest(self._limits.counters_kept)
            counters = backlog.as_stored(busiest[column])
            if counters != partition.counters.get(column, {}):
                found[column] = partition.counters[column] = counters
        return found

    def _owns(self, partition: Partition) -> bool:
        """Whether it is still ours: during a call it may be lost, and even taken anew."""
        return self._intake.partitions.get(partition.number) is partition

    def _lose(self, partition: Partition) -> None:
        """Another node has a higher epoch: write nothing more, not even a last mark."""
        if not self._owns(partition):
            return
        self._intake.lose(partition.number)
        self._events.emit(PartitionLost(self._intake.queue, partition.number, partition.epoch))


def _lines(triggers: Iterable[Trigger]) -> dict[int, list[Trigger]]:
    """The triggers of a page by partition, each line in order."""
    lines: dict[int, list[Trigger]] = defaultdict(list)
    for trigger in triggers:
        lines[trigger.partition].append(trigger)
    return lines


def _marks_of(parts: Iterable[Part]) -> dict[Column, Mark]:
    """The marks of the columns that are written anyway, so that A lags little after a crash."""
    return {part.column: part.backlog.mark for part in parts if not part.column.lane}
