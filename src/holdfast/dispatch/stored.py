"""Lanes that go on in the store: which of them to write, to read and to forget.  Pure.

A key that has to wait must not fill the windows of its column, or those behind it would never be
read.  When too few others are left in memory, the triggers that stand in lanes are *spilled*: each
is appended to its lane in the store and acked in the main line, so the ack level moves on.  A lane
whose key may not go on is not read, and holds nothing in memory.

A lane has no mark of its own.  What was dispatched of it is deleted, so whoever takes the partition
over finds the rest: some of it may be offered again, none is lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from holdfast.dispatch.backlog import NEW, Backlog, Merge, Merged
from holdfast.dispatch.lanes import Item
from holdfast.store import ZERO, Column, Entry, Level, Tail
from holdfast.task import lane_of

if TYPE_CHECKING:
    from holdfast.dispatch.columns import TableColumn
    from holdfast.dispatch.intake import Intake, Partition
    from holdfast.dispatch.limits import Limits

Place = tuple[int, Column]  # the partition, and the lane in it


def column_of(entry: Entry) -> Column:
    return Column(entry.trigger.priority, entry.trigger.kind, entry.lane)


class Pace:
    """How often the lanes of one column are written."""

    __slots__ = ("_served", "at", "wait_s")

    def __init__(self) -> None:
        self.at = 0.0  # not before this time
        self.wait_s = 0.0
        self._served = -1  # others that were dispatched until the last spill

    def spilled(self, now: float, served: int, limits: Limits) -> None:
        """The lanes are written now; the next time comes later when it helped nobody."""
        self._served, before = served, self._served
        self.wait_s = (
            min(max(self.wait_s * 2, limits.spill_s), limits.spill_s_max)
            if before == served
            else 0.0
        )
        self.at = now + self.wait_s


class StoredLanes:
    """The stored lanes of all partitions of one queue that this node owns."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._table = intake.table
        self._limits = intake.limits
        self._lanes: dict[Place, Backlog] = {}
        self._places: dict[tuple[str, str], set[Place]] = {}  # by kind and lane
        self._wanting: dict[Place, None] = {}  # to be read, the longest waiting first
        self._acked: set[Place] = set()  # something of them may be deleted
        self._paces: dict[tuple[int, str], Pace] = {}  # of columns with lanes
        self._trim_at = 0.0

    def __bool__(self) -> bool:
        return bool(self._lanes)

    def __len__(self) -> int:
        return len(self._lanes)

    # ── lanes come and go ─────────────────────────────────────────────────────────────────

    def found(self, partition: Partition, column: Column, tail: Tail) -> None:
        """A takeover found a lane."""
        self._new(partition, column, tail.level)
        self._store(partition.number, column, tail.fairness_key)
        self._wanting[partition.number, column] = None

    def lane(self, partition: Partition, column: Column) -> Backlog:
        """The backlog of this lane; a new one where nothing is stored."""
        backlog = self._lanes.get((partition.number, column))
        return self._new(partition, column, ZERO) if backlog is None else backlog

    def backlogs(self) -> Iterator[tuple[int, Column, Backlog]]:
        """Partition, column and backlog of each lane."""
        return ((number, column, lane) for (number, column), lane in self._lanes.items())

    def lost(self, partition: Partition) -> None:
        """The partition is no longer ours."""
        for place in [place for place in self._lanes if place[0] == partition.number]:
            self._unstore(place)
            self._forget(place)

    def released(self, lanes: list[tuple[str, str]]) -> bool:
        """These lanes (kind, name) may go on; True when there is something to read."""
        before = len(self._wanting)
        for lane in lanes:
            self._wanting.update(dict.fromkeys(self._places.get(lane, ())))
        return len(self._wanting) > before

    @property
    def _loaded(self) -> int:
        """Triggers in memory that stand in lanes."""
        return sum(len(column.lanes.aside) for _, _, column in self._table.with_lanes())

    @property
    def held_back(self) -> int:
        """Triggers in memory that may not go on, of all columns."""
        return sum(column.lanes.held_back for _, _, column in self._table.with_lanes())

    # ── writing ───────────────────────────────────────────────────────────────────────────

    def spill(self, now: float) -> float | None:
        """Choose what goes to the store; answers in how many seconds to ask again, if at all.

        Where it helps nobody, because everything read belongs to keys that may not go on, it is
        done at a slow pace only.  Each column has its own pace: none waits for another's lanes.
        """
        waits_s: list[float] = []
        paces: dict[tuple[int, str], Pace] = {}
        for priority, kind, column in self._table.with_lanes():
            pace = paces[priority, kind] = self._paces.get((priority, kind)) or Pace()
            if not self._is_clogged(priority, kind, column):
                continue
            if now >= pace.at:
                pace.spilled(now, column.served, self._limits)
                for item in list(self._table.aside(priority, kind)):
                    self._spill(item)
            waits_s.append(pace.at - now)
        self._paces = paces
        return min(waits_s, default=None)

    def _is_clogged(self, priority: int, kind: str, column: TableColumn) -> bool:
        """Whether what stands in lanes keeps others from being read, or A from moving."""
        main = Column(priority, kind)
        free = column.size - len(column.lanes.aside)
        for partition in self._intake.partitions.values():
            backlog = partition.columns.get(main)
            if backlog is None:
                continue
            if backlog.span > 2 * backlog.batch_max:
                return True
            if free <= self._limits.reload_at and backlog.is_stuck:
                return True
        return False

    def _spill(self, item: Item) -> None:
        trigger = item.trigger
        partition = self._intake.partitions.get(trigger.partition)
        # A takeover may find it in both: the last owner died before it could ack the main line.
        if partition is None or self._intake.leave_main(trigger):
            return
        lane = lane_of(trigger)
        partition.spilling[trigger.id] = lane
        partition.unwritten[trigger.id] = trigger
        column = Column(trigger.priority, trigger.kind, lane)
        self._store(partition.number, column, trigger.fairness_key)

    def appended(self, partition: Partition, column: Column) -> Merged:
        """Entries of this lane are durable; they stay in memory only if their key may go on soon.

        An ordering key is busy for one task only.  A limit or a pause may last.
        """
        backlog = self._lanes[partition.number, column]
        merge = backlog.appended()
        if column.lane.startswith("o") or not self._table.is_held(column.kind, column.lane):
            return backlog, merge
        return backlog, Merge([], backlog.unload().dropped)

    def unload(self) -> list[Merged]:
        """Lanes that may not go on leave memory where all lanes together have too much of it.

        An ordering key is mostly busy for one task only, but many may wait for an elder that is
        retried, and then they would leave no room for the elders, nor for anybody else.
        """
        if self._loaded <= self._limits.lanes_loaded:
            return []
        merges: list[Merged] = []
        excess = sum(lane.loaded for lane in self._lanes.values()) - self._limits.lanes_loaded
        for (_, column), lane in self._lanes.items():
            if excess > 0 and lane.loaded and self._table.is_held(column.kind, column.lane):
                excess -= lane.loaded
                merges.append((lane, lane.unload()))
        return merges

    # ── reading ───────────────────────────────────────────────────────────────────────────

    @property
    def wants_turn(self) -> bool:
        return bool(self._wanting)

    def to_read(self) -> list[tuple[int, Column, Backlog]]:
        """Lanes that may go on and have run low, as far as memory allows."""
        loaded = self._loaded
        chosen: list[tuple[int, Column, Backlog]] = []
        for place in list(self._wanting):
            backlog = self._lanes.get(place)
            column = place[1]
            is_held = self._table.is_held(column.kind, column.lane)
            if backlog is not None and backlog.wants_read and not is_held:
                if chosen and loaded >= self._limits.lanes_loaded:
                    break
                loaded += backlog.batch_max
                chosen.append((*place, backlog))
            del self._wanting[place]
        return chosen

    def was_read(self, number: int, column: Column) -> None:
        """A read of this lane has ended, well or not."""
        place = (number, column)
        backlog = self._lanes.get(place)
        if backlog is not None:
            self._look(place, backlog)

    # ── dispatched triggers are deleted ───────────────────────────────────────────────────

    def acked(self, partition: Partition, column: Column) -> None:
        """A trigger of this lane was decided."""
        place = (partition.number, column)
        backlog = self._lanes.get(place)
        if backlog is not None:
            self._acked.add(place)
            self._look(place, backlog)

    def trims(self, now: float) -> dict[Place, tuple[Level, Level]]:
        """What to delete now."""
        if now < self._trim_at or not self._acked:
            return {}
        self._trim_at = now + self._limits.lane_trim_s
        places, self._acked = self._acked, set()
        found = {}
        for place in places:
            backlog = self._lanes.get(place)
            if backlog is None:
                continue
            if (span := backlog.trim()) is not None:
                found[place] = span
            elif backlog.is_empty:
                self._forget(place)
        return found

    def trimmed(self, place: Place, to: Level) -> None:
        backlog = self._lanes.get(place)
        if backlog is not None:
            backlog.trimmed(to)
            if not backlog.is_empty:
                return
            if backlog.trim() is None:
                self._forget(place)
            else:
                self._acked.add(place)  # more was decided meanwhile

    def trim_failed(self, places: dict[Place, tuple[Level, Level]]) -> None:
        self._acked.update(places)

    def _look(self, place: Place, backlog: Backlog) -> None:
        if backlog.is_empty:
            self._acked.add(place)
            self._unstore(place)
        elif backlog.wants_read:
            self._wanting[place] = None

    def _new(self, partition: Partition, column: Column, highest: Level) -> Backlog:
        main = self._intake.backlog(partition, column._replace(lane=""))
        window = self._limits.lane_window
        place = (partition.number, column)
        backlog = self._lanes[place] = Backlog(
            NEW,
            passes=self._table.passes(column.priority, column.kind),
            highest=highest,
            batch_max=window,
            reload_at=window // 4,
            lane=column.lane,
            shift=main.shift,
            base=partition.base,
        )
        self._places.setdefault((column.kind, column.lane), set()).add(place)
        return backlog

    def _store(self, number: int, column: Column, key: str | None) -> None:
        self._table.lanes(column.priority, column.kind).store(column.lane, key, number)

    def _unstore(self, place: Place) -> None:
        number, column = place
        self._table.lanes(column.priority, column.kind).unstore(column.lane, number)
        self._table.relist(column.priority, column.kind)

    def _forget(self, place: Place) -> None:
        del self._lanes[place]
        self._wanting.pop(place, None)
        self._acked.discard(place)
        where = (place[1].kind, place[1].lane)
        self._places[where].discard(place)
        if not self._places[where]:
            del self._places[where]
