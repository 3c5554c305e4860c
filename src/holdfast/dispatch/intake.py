"""The intake: what becomes of each trigger that reaches this node.  Pure.

A trigger comes in by the bus, by an early read, by an exact read or out of the backlog.  It is
started from the trigger table.  Three facts are kept of it:

* `known`    id -> version of what is in memory, being grabbed or running; stops duplicates.
* `places`   id -> where it stands in a backlog, to be acked once its grab is decided.
* a partition's `remembered`  ids appended above the position P, which the exact read skips.

A read of arrivals takes its time, and some of what it saw may be grabbed meanwhile: these
decisions are kept until the next read, or such rows would be offered for nothing.

A trigger skips the backlog when nothing of its column is stored or being stored: it is then in
memory only, and above P, so the exact read of this or the next owner appends it if it is still
SUBMITTED.  Everything else is first `unwritten`, then appended, then offered to the table.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, count
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

from holdfast.dispatch.backlog import NEW, Backlog, Merged
from holdfast.dispatch.limits import Limits
from holdfast.dispatch.stored import StoredLanes, column_of
from holdfast.dispatch.table import TriggerTable
from holdfast.store import ZERO, Column, Counters, Entry, Level, Loaded, Mark, Position, Tail
from holdfast.task import TaskId, Trigger

SKIPS_MIN = 16  # triggers of one column that may skip its backlog, however many columns there are

NUMBER_BITS = 40  # of a seq, for the triggers of one ownership; the bits above are the epoch

ANYONE = -1
"""The partition of a trigger that its owner has no handler for: any node may try it."""

_new: Any = tuple.__new__  # a named tuple, in half the time
_arrival = attrgetter("arrived", "id")
_shown_level = itemgetter(0)


class Partition:
    """One partition that this node owns."""

    def __init__(self, number: int, epoch: int, position: Position) -> None:
        self.number = number
        self.epoch = epoch
        self.base = epoch << NUMBER_BITS  # of our numbers in it: above those of every owner before
        self.position = position  # P: every SUBMITTED row at or below it stands in the backlog
        self.early = position  # E: the early reads' cursor, in memory only
        self.columns: dict[Column, Backlog] = {}
        self.remembered: dict[TaskId, int] = {}
        self.unwritten: dict[TaskId, Trigger] = {}
        self.awaiting: set[Column] = set()  # columns with unwritten triggers: no skip meanwhile
        self.anew: set[TaskId] = set()  # their old places are acked when they are written again
        self.spilling: dict[TaskId, str] = {}  # the lane to which a trigger is being written
        self.counters: dict[Column, Counters] = {}  # as they were written last
        self.is_dirty = True  # something arrived since P was moved

    def moved_to(self, position: Position) -> None:
        self.position = position
        self.early = max(self.early, position)


class Place(NamedTuple):
    """Where a trigger stands in a backlog."""

    backlog: Backlog
    entry: Entry
    other: Place | None = None  # where its task stands as well


class Part(NamedTuple):
    """What is appended to one column, or one lane, at once."""

    column: Column
    backlog: Backlog
    entries: list[Entry]


class Intake:
    """Everything this node knows of one queue's triggers."""

    def __init__(
        self,
        queue: str,
        table: TriggerTable,
        limits: Limits,
        *,
        handles: Callable[[str], bool],
    ) -> None:
        self.queue = queue
        self.table = table
        self.limits = limits
        self.partitions: dict[int, Partition] = {}
        self.known: dict[TaskId, int] = {}
        self.places: dict[TaskId, Place] = {}
        self.unhandled: dict[TaskId, Trigger] = {}
        self._handles = handles
        self._unoffered: list[tuple[Backlog, Entry]] = []
        self._columns: set[Column] = set()  # those in use, when memory was shared out last
        self._skips_max = limits.look_ahead // 4  # triggers of one column that may skip at once
        self._seq = count(1)
        self._is_reading = False
        self._decided: dict[TaskId, int] = {}  # by grabs during the last read of arrivals
        self.stored = StoredLanes(self)  # lanes that go on in the store

    # ── partitions come and go ────────────────────────────────────────────────────────────

    def take(self, loaded: Loaded, epoch: int) -> Partition:
        """Begin to own a partition, with what its last owner left."""
        partition = Partition(loaded.partition, epoch, loaded.position)
        for column in loaded.marks.keys() | loaded.columns.keys():
            if column.lane:
                continue
            mark = loaded.marks.get(column, NEW)
            tail = loaded.columns.get(column, Tail(ZERO))
            backlog = partition.columns[column] = self._new_backlog(
                partition, column, mark, tail.level
            )
            backlog.restore(loaded.counters.get(column, {}))
            # The last entry of all is exact, however old the counters are.
            backlog.restore({tail.fairness_key: tail.level.pass_})
        self.partitions[partition.number] = partition
        for column, tail in loaded.columns.items():
            if column.lane:
                self.stored.found(partition, column, tail)
        self.fit()
        return partition

    def lose(self, number: int) -> None:
        """Stop owning a partition: its triggers leave memory, attempts that run go on."""
        partition = self.partitions.pop(number, None)
        if partition is None:
            return
        for item in self.table.drop_partition(number):
            self._forget(item.trigger.id)
        for trigger in [t for t in self.unhandled.values() if t.partition == number]:
            del self.unhandled[trigger.id]
            self._forget(trigger.id)
        self._unoffered = [(b, e) for b, e in self._unoffered if e.trigger.partition != number]
        self.stored.lost(partition)
        # Of what is on its way to a grab, too: its backlog is not ours to ack any more.
        for id in [id for id, p in self.places.items() if p.entry.trigger.partition == number]:
            del self.places[id]

    # ── triggers come in ──────────────────────────────────────────────────────────────────

    @property
    def room(self) -> int:
        """How many more triggers may be fetched ahead."""
        unwritten = sum(len(p.unwritten) for p in self.partitions.values())
        return self.limits.look_ahead - len(self.table) - unwritten - len(self._unoffered)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Arrivals are read inside: what is decided meanwhile is no news afterwards."""
        self._decided.clear()
        self._is_reading = True
        try:
            yield
        finally:
            self._is_reading = False

    def hear(self, triggers: Iterable[Trigger]) -> list[Trigger]:
        """Take in hints from the bus or an early read; answers what did not fit into memory."""
        left: list[Trigger] = []
        known, partitions, table = self.known, self.partitions, self.table
        decided, elders = self._decided, self.table.elders
        for trigger in triggers:
            id = trigger.id
            if known.get(id, 0) >= trigger.version or decided.get(id, 0) >= trigger.version:
                continue
            partition = partitions.get(trigger.partition)
            if partition is None:
                if trigger.partition == ANYONE:
                    self._try_for_another(trigger)
                continue
            partition.is_dirty = True
            if partition.remembered.get(id, 0) >= trigger.version:
                continue
            unwritten = partition.unwritten.get(id)
            if unwritten is not None and unwritten.version >= trigger.version:
                continue  # it keeps its turn
            if not self._handles(trigger.kind):
                self._set_unhandled(trigger)
                continue
            if elders.awaited and elders.is_awaited(trigger):
                self.offer_behind(trigger)  # its siblings hold the places before it, and wait
                continue
            column = Column(trigger.priority, trigger.kind)
            backlog = self.backlog(partition, column)
            may_skip = (
                backlog.is_empty
                and column not in partition.awaiting
                and not (self.stored and table.has_lane(trigger))
            )
            if may_skip and table.size_of(trigger.priority, trigger.kind) < self._skips_max:
                if table.has_room:
                    passes = table.passes(trigger.priority, trigger.kind)
                    pass_ = passes.next(trigger.fairness_key, trigger.weight)
                    table.add(trigger, Level(pass_, next(self._seq)))
                    known[id] = trigger.version
                else:
                    left.append(trigger)
            elif self._may_append(partition):
                partition.unwritten[id] = trigger
                partition.awaiting.add(column)
            else:
                left.append(trigger)
        return left

    def read_early(self, triggers: Sequence[Trigger]) -> bool:
        """Take in a page of an early read, and move the cursors past it; False: no room for all.

        A cursor never passes a trigger that was not taken in: while a transaction stays open
        somewhere, the exact read does not get there either.
        """
        left = {(trigger.partition, trigger.id) for trigger in self.hear(triggers)}
        full: set[int] = set()
        for trigger in triggers:
            number = trigger.partition
            if (number, trigger.id) in left:
                full.add(number)
            partition = self.partitions.get(number)
            if partition is not None and number not in full:
                partition.early = max(partition.early, Position(trigger.arrived, trigger.id))
        return not full

    # ── appends ───────────────────────────────────────────────────────────────────────────

    def choose(self, lines: Sequence[tuple[Partition, Collection[Trigger]]]) -> list[list[Part]]:
        """Give each trigger its level, line by line; `appended` or `append_failed` must follow.

        Turns and numbers follow the arrival over all lines: what came together is dispatched
        together, and stands on the same pages of the store.
        """
        arrived = sorted(chain.from_iterable(line for _, line in lines), key=_arrival)
        turns = {trigger.id: (self._turn(trigger), next(self._seq)) for trigger in arrived}
        return [self._chosen(partition, line, turns) for partition, line in lines]

    def _turn(self, trigger: Trigger) -> int:
        """Its key's next pass; a trigger that skipped the backlog has one already and keeps it."""
        passes = self.table.passes(trigger.priority, trigger.kind)
        if self.known.get(trigger.id) != trigger.version:
            return passes.next(trigger.fairness_key, trigger.weight)
        level = self.table.level_of(trigger)
        return passes.top if level is None else level.pass_

    def _chosen(
        self,
        partition: Partition,
        line: Collection[Trigger],
        turns: Mapping[TaskId, tuple[int, int]],
    ) -> list[Part]:
        columns: dict[tuple[int, str, str], list[Trigger]] = {}
        spilling = partition.spilling
        for trigger in line:
            lane = spilling.get(trigger.id, "") if spilling else ""
            place = (trigger.priority, trigger.kind, lane)
            if place in columns:
                columns[place].append(trigger)
            else:
                columns[place] = [trigger]
        parts = []
        for place, triggers in columns.items():
            column = Column(*place)
            backlog = self._line(partition, column)
            entries = backlog.place(triggers, [turns[trigger.id] for trigger in triggers])
            parts.append(Part(column, backlog, entries))
        return parts

    def appended(self, partition: Partition, parts: Sequence[Part], *, early: bool) -> list[Merged]:
        """The entries are durable: what changes in memory, to be merged."""
        merges: list[Merged] = []
        for column, backlog, entries in parts:
            if partition.anew:
                self._written_anew(partition, entries)
            if column.lane:
                for entry in entries:
                    self._spilled(partition, entry.trigger)
                merges.append(self.stored.appended(partition, column))
                continue
            if early:
                partition.remembered.update((e.trigger.id, e.trigger.version) for e in entries)
            merges.append((backlog, backlog.appended()))
        return merges

    def _written_anew(self, partition: Partition, entries: Iterable[Entry]) -> None:
        for _, trigger, _ in entries:
            if trigger.id in partition.anew:
                partition.anew.discard(trigger.id)
                self._leave(trigger.id, trigger.version)

    def _spilled(self, partition: Partition, trigger: Trigger) -> None:
        """A trigger stands in its lane: it leaves the main line.  It may be offered anew."""
        # What skipped the backlog stands above P, like what was appended early.
        remembered = partition.remembered.get(trigger.id)
        if trigger.id not in self.places:
            remembered = trigger.version
        partition.spilling.pop(trigger.id, None)
        self._leave(trigger.id, trigger.version)
        if remembered is not None:
            partition.remembered[trigger.id] = remembered
        if self.table.remove(trigger.id) is not None:
            self.known.pop(trigger.id, None)

    def append_failed(self, partition: Partition, parts: Sequence[Part]) -> None:
        """Nobody knows whether the entries were written: read everything above P again.

        What was to be written anew may stand below P: the partition has to be given up, and
        whoever takes it finds the old entry.
        """
        for column, backlog, entries in parts:
            backlog.append_failed()
            if column.lane:
                self.stored.was_read(partition.number, column)
                for entry in entries:
                    partition.spilling.pop(entry.trigger.id, None)
        partition.early = partition.position
        partition.is_dirty = True

    def unknown_rows(self, partition: Partition, rows: Iterable[Trigger]) -> list[Trigger]:
        """Of an exact page: the rows that are not known to stand in the backlog.

        What is known from memory alone does not count, or a crash would lose it.
        """
        missing = []
        unwritten, remembered, decided = partition.unwritten, partition.remembered, self._decided
        if not (unwritten or remembered or decided):
            return list(rows)
        for row in rows:
            unwritten.pop(row.id, None)
            is_decided = decided.get(row.id, 0) >= row.version
            if remembered.pop(row.id, 0) < row.version and not is_decided:
                missing.append(row)
        return missing

    def merge(self, merges: Sequence[Merged]) -> None:
        """Put what backlogs offer into the table, and take out what they dropped.

        In the order of the levels over all of them: so the table's lines stay sorted.
        """
        for backlog, merge in merges:
            for entry in merge.dropped:
                self._drop(backlog, entry)
            if merge.dropped and self._unoffered:
                gone = {entry.level for entry in merge.dropped}
                self._unoffered = [
                    (b, e) for b, e in self._unoffered if b is not backlog or e.level not in gone
                ]
        offered = [each for backlog, merge in merges for each in backlog.shown(merge.offered)]
        if len(merges) > 1:
            offered.sort(key=_shown_level)
        for shown, entry, backlog in offered:
            self._offer(backlog, entry, shown)

    def offer_again(self) -> None:
        """Offer what found the table full before."""
        waiting, self._unoffered = self._unoffered, []
        for backlog, entry in waiting:
            for shown, _, _ in backlog.shown([entry]):
                self._offer(backlog, entry, shown)

    # ── triggers leave ────────────────────────────────────────────────────────────────────

    def decided(self, id: TaskId, version: int) -> None:
        """The grab at this version was decided in the store: its places in backlogs are done."""
        if self._is_reading:
            self._decided[id] = max(version, self._decided.get(id, 0))
        self._leave(id, version)

    def finished(self, id: TaskId, version: int) -> None:
        """Nothing of this task up to this version is in memory any more."""
        if id in self.places:
            self._leave(id, version)
        if self.known.get(id, version + 1) <= version:
            del self.known[id]

    def _leave(self, id: TaskId, version: int) -> None:
        """Ack the places of this task up to this version."""
        place = self.places.pop(id, None)
        while place is not None:
            backlog, entry, place = place
            level, trigger, lane = entry
            if trigger.version <= version:
                backlog.ack(level)
                partition = self.partitions.get(trigger.partition)
                if partition is not None:
                    if partition.remembered:
                        partition.remembered.pop(id, None)
                    if lane:
                        self.stored.acked(partition, column_of(entry))
            else:
                self._stand(id, backlog, entry)

    def leave_main(self, trigger: Trigger) -> bool:
        """Ack the trigger in the main line if it stands in its lane too; whether it does."""
        places = self.places_of(trigger.id)
        if not any(e.lane and e.trigger.version >= trigger.version for _, e, _ in places):
            return False
        del self.places[trigger.id]
        for backlog, entry, _ in reversed(places):
            if entry.lane:
                self._stand(trigger.id, backlog, entry)
            else:
                backlog.ack(entry.level)
        return True

    def write_anew(self, trigger: Trigger) -> None:
        """Append a trigger that cannot be grabbed once more, at the end; then ack its old place.

        Not when its task has moved on, or when the partition has a new owner, who will see it.
        """
        id = trigger.id
        partition = self.partitions.get(trigger.partition)
        if partition is None or self._newest(partition, id) > trigger.version:
            self.finished(id, trigger.version)
            return
        self.known.pop(id, None)
        partition.remembered.pop(id, None)
        partition.unwritten[id] = trigger
        partition.awaiting.add(Column(trigger.priority, trigger.kind))
        partition.anew.add(id)

    def _newest(self, partition: Partition, id: TaskId) -> int:
        """The latest version of the task that has come in."""
        unwritten = partition.unwritten.get(id)
        written = max(self.known.get(id, 0), partition.remembered.get(id, 0))
        return written if unwritten is None else max(written, unwritten.version)

    def offer_behind(self, trigger: Trigger) -> None:
        """Put a trigger that could not be grabbed now back into the table, behind the others.

        One that was read from the stored part of a lane belongs to that part: behind it, it would
        wait for itself.
        """
        lane = self._stored_lane(trigger)
        self.table.add(trigger, self._now_level(trigger), lane, was_here=True)
        self.known[trigger.id] = trigger.version

    def found(self, elder: Trigger) -> None:
        """Take in an elder that the store named, wherever it stands, if it is news and ours.

        Its siblings may fill the memory of their lane, and it may stand behind them in the store.
        """
        is_known = self.known.get(elder.id, 0) >= elder.version
        if elder.partition in self.partitions and not is_known and self._handles(elder.kind):
            self.offer_behind(elder)

    def _stored_lane(self, trigger: Trigger) -> str:
        lanes = [p.entry.lane for p in self.places_of(trigger.id) if p.entry.lane]
        return lanes[0] if lanes else ""

    def _offer(self, backlog: Backlog, entry: Entry, shown: Level) -> None:
        level, trigger, lane = entry
        id, version = trigger.id, trigger.version
        have = self.known.get(id)
        if have is not None and have > version:
            backlog.ack(level)  # an older version can never be grabbed any more
            if lane:
                self.stored.acked(self.partitions[trigger.partition], column_of(entry))
            return
        if have == version:
            # It is in the table or on its way already: one decision serves both places.
            self._stand(id, backlog, entry)
            if lane and self.table.remove(id) is not None:
                self.table.add(trigger, shown, lane, was_here=True)
            return
        if have is not None:
            self._leave(id, version - 1)  # its older places would wait for this one
        if not self._handles(trigger.kind):
            self.unhandled[id] = trigger
        elif not self.table.add(trigger, shown, lane):
            self._unoffered.append((backlog, entry))
            return
        self.known[id] = version
        self._stand(id, backlog, entry)

    def _stand(self, id: TaskId, backlog: Backlog, entry: Entry) -> None:
        """The task stands here in a backlog, and perhaps elsewhere too."""
        self.places[id] = _new(Place, (backlog, entry, self.places.get(id)))

    def _drop(self, backlog: Backlog, entry: Entry) -> None:
        """An entry left the window: it will be read again.  Other places of its task stay."""
        id = entry.trigger.id
        places = self.places_of(id)
        rest = [place for place in places if (place.backlog, place.entry) != (backlog, entry)]
        if len(rest) == len(places):
            return  # it was decided meanwhile
        del self.places[id]
        for place in rest:
            self._stand(id, place.backlog, place.entry)
        # If it is on its way to a grab: when read again, that grab has decided.
        if not rest and self.table.remove(id) is not None:
            self.known.pop(id, None)

    def _try_for_another(self, trigger: Trigger) -> None:
        may_run = self._handles(trigger.kind) and trigger.ordering_key is None
        if may_run and self.table.add(trigger, self._now_level(trigger)):
            self.known[trigger.id] = trigger.version

    def _set_unhandled(self, trigger: Trigger) -> None:
        if len(self.unhandled) < self.limits.unhandled_max:
            self.unhandled[trigger.id] = trigger
            self.known[trigger.id] = trigger.version

    def places_of(self, id: TaskId) -> list[Place]:
        """Everywhere the task stands, also at older versions."""
        places = []
        place = self.places.get(id)
        while place is not None:
            places.append(place)
            place = place.other
        return places

    def _forget(self, id: TaskId) -> None:
        self.known.pop(id, None)
        self.places.pop(id, None)

    def _now_level(self, trigger: Trigger) -> Level:
        """A level among those that are dispatched now, behind the others of its pass."""
        passes = self.table.passes(trigger.priority, trigger.kind)
        return Level(passes.top, next(self._seq))

    def _line(self, partition: Partition, column: Column) -> Backlog:
        """The backlog of this column, or of this lane."""
        return (
            self.stored.lane(partition, column) if column.lane else self.backlog(partition, column)
        )

    def backlog(self, partition: Partition, column: Column) -> Backlog:
        backlog = partition.columns.get(column)
        if backlog is None:
            backlog = partition.columns[column] = self._new_backlog(partition, column, NEW, ZERO)
            if column not in self._columns:
                self.fit()
        return backlog

    def fit(self) -> None:
        """Share memory among the columns in use: none of them may fill it, however long it is."""
        self._columns = {
            column
            for partition in self.partitions.values()
            for column, backlog in partition.columns.items()
            if not backlog.is_empty or self.table.size_of(column.priority, column.kind)
        }
        self._skips_max = max(SKIPS_MIN, self.limits.look_ahead // (4 * self._shares))
        window = self._window()
        self.merge(
            [
                (backlog, backlog.resize(*window))
                for partition in self.partitions.values()
                for backlog in partition.columns.values()
            ]
        )

    @property
    def _shares(self) -> int:
        return len(self._columns) + 1  # one for the next newcomer

    def _new_backlog(
        self, partition: Partition, column: Column, mark: Mark, highest: Level
    ) -> Backlog:
        batch_max, reload_at = self._window()
        return Backlog(
            mark,
            passes=self.table.passes(column.priority, column.kind),
            highest=highest,
            batch_max=batch_max,
            reload_at=reload_at,
            base=partition.base,
        )

    def _window(self) -> tuple[int, int]:
        """How many triggers of one column of one partition may be loaded, and when to read on."""
        limits = self.limits
        share = limits.look_ahead // (2 * self._shares * max(1, len(self.partitions)))
        batch_max = max(1, min(limits.window, share))
        return batch_max, min(limits.reload_at, batch_max // 4)

    def _may_append(self, partition: Partition) -> bool:
        limits = self.limits
        return (
            len(partition.unwritten) < limits.append_max
            and len(partition.remembered) + len(partition.unwritten) < limits.remembered_max
        )
