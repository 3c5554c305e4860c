"""The trigger table: what this node could start next, in the order it should.

    priority 0   mail    ▸ (7,3) (7,9) …        one column for each (priority, kind),
                 payout  ▸ (2,1) (2,4) …        in it the triggers by level (pass, seq)
    priority 5   mail    ▸ (9,2) …

A search goes from the first priority to the last and looks at heads only.  Within a priority the
columns stand in a heap, by whose turn it is ("fair") or by whose head arrived first ("arrival").
A kind that has no room leaves the heaps until a slot is freed, so a search asks it once and later
searches not at all; it keeps its number meanwhile, so it loses nothing but its turn.

A key that is refused alone is held back: its triggers leave the line for a lane as they come to
the head, and the lane competes again when the key is released.  So each trigger is moved once,
however often its key is refused.

Nothing here is durable: if the process dies, the next owner reads the triggers from the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from heapq import heappop, heappush, heapreplace
from itertools import count
from random import Random
from typing import Any, Literal

from holdfast.booking import Full
from holdfast.dispatch.columns import Kind, Row, TableColumn
from holdfast.dispatch.elders import Elders
from holdfast.dispatch.lanes import UNLISTED, Item, Lanes
from holdfast.dispatch.passes import NO_WEIGHTS, Key, Passes
from holdfast.limit import Mode
from holdfast.store import Level
from holdfast.task import TaskId, Trigger, lane_of

_new: Any = tuple.__new__  # a named tuple, in half the time

Book = Callable[[Trigger], Full | None]
Order = Literal["fair", "arrival"]

COLUMNS_KEPT_MAX = 256

TURN = 1 << 32  # the step of a kind with one turn; with `turns` it is as much shorter
TURNS_MIN = 0.001
NUMBER_BITS = 64  # below a turn, so that no two columns have the same number
NO_TURNS: Mapping[str, float] = {}


class TriggerTable:
    """One table per queue, over all partitions of a node."""

    def __init__(
        self,
        *,
        order: Order = "fair",
        size_max: int = 10_000,
        rng: Random,
        weights: Mapping[Key, float] = NO_WEIGHTS,
        turns: Mapping[str, float] = NO_TURNS,
        counting: Callable[[int], Iterator[int]] = count,
    ) -> None:
        """`counting` gives the numbers of arrivals and turns: from a start, always increasing.

        `weights` beats the weights of tasks; it may change at any time.  `turns` says how often
        a kind is served while others are served once; those that it does not name have one turn.
        """
        self._by_arrival = order == "arrival"
        self._size_max = size_max
        self._turns = {kind: max(many, TURNS_MIN) for kind, many in turns.items() if many != 1}
        self._next_arrival = counting(1).__next__
        self._next_turn = counting(1).__next__
        self._items: dict[TaskId, Item] = {}
        self.elders = Elders()
        self._kinds: dict[str, Kind] = {}
        self._rows: dict[int, Row] = {}  # by priority, first to last
        self._full: list[Kind] = []
        # What releases a key -> the lanes held back for it, by kind.
        self._held: dict[Key, dict[tuple[str, str], None]] = {}
        self._passes: dict[tuple[int, str], Passes] = {}
        self._mode: Mode = "count"
        self._new_passes = partial(Passes, rng=rng, weights=weights)

    def __len__(self) -> int:
        return len(self._items)

    @property
    def has_room(self) -> bool:
        return len(self._items) < self._size_max

    @property
    def keys_held(self) -> list[Key]:
        """What `release` would answer to, the longest held first."""
        return list(self._held)

    def passes(self, priority: int, kind: str) -> Passes:
        """Whose turn it is in this column."""
        passes = self._passes.get((priority, kind))
        if passes is None:
            passes = self._passes[priority, kind] = self._new_passes()
            passes.switch(self._mode)
        return passes

    def switch(self, mode: Mode) -> None:
        """Charge keys in another way from now on."""
        self._mode = mode
        for passes in self._passes.values():
            passes.switch(mode)

    @property
    def charges_by_cost(self) -> bool:
        return self._mode == "cost"

    def charge(self, trigger: Trigger, ran_s: float | None) -> None:
        """How long the handler of a trigger that was taken here ran; None: it never did."""
        if self._mode == "cost":
            self._column(trigger.priority, trigger.kind).lanes.charge(trigger, ran_s)
            self.relist(trigger.priority, trigger.kind)

    def add(
        self, trigger: Trigger, level: Level, lane: str = "", *, was_here: bool = False
    ) -> bool:
        """Take the trigger in, or answer False when the table is full: the reader stops here.

        One that `was_here` comes back in any case: nobody reads it again.

        A task stands in the table once: a newer version replaces an older one, which could not be
        grabbed any more, and what is not newer changes nothing.
        """
        items = self._items
        old = items.get(trigger.id)
        if old is not None:
            if old.trigger.version >= trigger.version:
                return True
            self.remove(trigger.id)
        elif len(items) >= self._size_max and not was_here:
            return False
        column = self._column(trigger.priority, trigger.kind)
        if not column.size:
            # An empty column gathers no credit.
            column.turn = self._stride(column) if self._turns else self._next_turn()
        item = _new(Item, (trigger, level, self._next_arrival()))
        items[trigger.id] = item
        if trigger.ordering_key is not None:
            self.elders.add(trigger.ordering_key, trigger.id)
        may_lead = column.add(item, lane)
        if column.number == UNLISTED or (may_lead and self._by_arrival):
            self._list(column)
        return True

    def level_of(self, trigger: Trigger) -> Level | None:
        """Where this version of the task stands, or None."""
        item = self._items.get(trigger.id)
        return item.level if item is not None and item.trigger.version == trigger.version else None

    def eldest(self, key: str) -> Trigger | None:
        """The eldest task of this ordering key that stands here, in whichever column."""
        id = self.elders.first(key)
        return None if id is None else self._items[id].trigger

    def _leave_key(self, trigger: Trigger) -> None:
        if trigger.ordering_key is not None:
            self.elders.leave(trigger.ordering_key, trigger.id)

    def size_of(self, priority: int, kind: str) -> int:
        """How many triggers of this column are here, those held back included."""
        row = self._rows.get(priority)
        column = None if row is None else row.columns.get(kind)
        return 0 if column is None else column.size

    def take(self, book: Book) -> Item | None:
        """Remove and return the first trigger that can book a slot, or None.

        One hit ends the search.  Until it is booked, a trigger stays where it stands.
        """
        for row in self._rows.values():
            heap = row.heap
            while heap:
                number, column = heap[0]
                if number != column.number:
                    heappop(heap)
                    continue
                kind = column.kind
                head = None if kind.is_full else column.head()
                if head is None:
                    heappop(heap)
                    column.number = UNLISTED
                elif (full := book(head.trigger)) is None:
                    self._take_head(column, head)
                    return head
                elif full.key_only:
                    self._hold(kind, head.trigger)
                else:
                    kind.is_full = True
                    self._full.append(kind)
        return None

    def freed(self) -> None:
        """Some slot was given back, or a time has come: kinds found full may be asked again."""
        if self._full:
            kinds, self._full = self._full, []
            for kind in kinds:
                kind.is_full = False
                for column in kind.columns:
                    self._list(column)

    def release(self, key: Key) -> list[tuple[str, str]]:
        """What was refused for this ordering or fairness key may go on: (kind, lane) of it."""
        released = list(self._held.get(key, ()))
        for name, lane in released:
            kind = self._kinds[name]
            for other in kind.held.pop(lane):
                self._held[other].pop((name, lane))
                if not self._held[other]:
                    del self._held[other]
            for column in kind.columns:
                column.lanes.release(lane)
                self._list(column)
        return released

    def is_held(self, kind: str, lane: str) -> bool:
        """Whether this lane may not go on now."""
        found = self._kinds.get(kind)
        return found is not None and lane in found.held

    def has_lane(self, trigger: Trigger) -> bool:
        """Whether the key of this trigger has a lane in its column."""
        row = self._rows.get(trigger.priority)
        column = None if row is None else row.columns.get(trigger.kind)
        return column is not None and bool(column.lanes) and lane_of(trigger) in column.lanes

    def with_lanes(self) -> list[tuple[int, str, TableColumn]]:
        """The columns in which somebody had to wait."""
        return [
            (priority, kind, column)
            for priority, row in self._rows.items()
            for kind, column in row.columns.items()
            if column.lanes
        ]

    def aside(self, priority: int, kind: str) -> Iterator[Item]:
        """What stands in lanes of this column, and is alive."""
        row = self._rows.get(priority)
        column = None if row is None else row.columns.get(kind)
        if column is not None and column.lanes:
            # By identity: the dead item of an older version has the same id.
            alive = self._items
            yield from (i for i in column.lanes.waiting() if alive.get(i.trigger.id) is i)

    def lanes(self, priority: int, kind: str) -> Lanes:
        """The lanes of this column."""
        return self._column(priority, kind).lanes

    def relist(self, priority: int, kind: str) -> None:
        """The lanes of this column have changed: its head may be another one."""
        self._list(self._column(priority, kind))

    def remove(self, id: TaskId) -> Item | None:
        """Take out a trigger that was dropped from its window; None when it is not here."""
        item = self._items.pop(id, None)
        if item is not None:
            self._leave_key(item.trigger)
            column = self._rows[item.trigger.priority].columns[item.trigger.kind]
            column.remove(item)
            if not column.size:
                column.number = UNLISTED  # when it fills again it takes a new turn
                column.turn = 0  # the old one was never served
            elif self._by_arrival:
                self._list(column)  # the next head may have arrived before this one
        return item

    def drop_partition(self, partition: int) -> list[Item]:
        """Take out everything of a partition that this node no longer owns."""
        dropped = [item for item in self._items.values() if item.trigger.partition == partition]
        for item in dropped:
            self.remove(item.trigger.id)
        return dropped

    def triggers(self) -> Iterator[Trigger]:
        """What is here, in no order."""
        return (item.trigger for item in self._items.values())

    def waiting(self) -> Iterator[Item]:
        """What is still here, also what is held back: by priority, then column, then level."""
        for row in self._rows.values():
            columns = [column for column in row.columns.values() if column.size]
            for column in sorted(columns, key=self._number_of):
                yield from column.items()

    def _column(self, priority: int, kind: str) -> TableColumn:
        row = self._rows.get(priority)
        column = None if row is None else row.columns.get(kind)
        return self._new_column(priority, kind) if column is None else column

    def _new_column(self, priority: int, name: str) -> TableColumn:
        row = self._rows.get(priority)
        if row is None:
            row = Row()
            rows = {**self._rows, priority: row}
            self._rows = {number: rows[number] for number in sorted(rows)}
        if len(row.columns) >= COLUMNS_KEPT_MAX:
            self._forget_empty(row)
        kind = self._kinds.get(name)
        if kind is None:
            kind = self._kinds[name] = Kind(name, round(TURN / self._turns.get(name, 1)))
        passes = self.passes(priority, name)
        column = row.columns[name] = TableColumn(kind, row, self._items, passes)
        kind.columns.append(column)
        return column

    def _forget_empty(self, row: Row) -> None:
        """Kinds that came once must not fill memory for ever."""
        for name, column in list(row.columns.items()):
            if not column.size and not column.lanes:
                column.number = UNLISTED
                column.kind.columns.remove(column)
                del row.columns[name]
                if not column.kind.columns and not column.kind.held and not column.kind.is_full:
                    del self._kinds[name]

    def _list(self, column: TableColumn) -> None:
        """Bring a column's place among those of its priority up to date."""
        if column.kind.is_full:
            return  # the search takes it off the list when it gets there
        head = column.head()
        if head is None:
            column.number = UNLISTED
            return
        number = _arrived(head) if self._by_arrival else column.turn
        if number != column.number:
            column.number = number
            heappush(column.heap, (number, column))

    def _take_head(self, column: TableColumn, head: Item) -> None:
        """Remove the head of the column that is first in its heap; the column gets a new number."""
        column.pop(head)
        del self._items[head.trigger.id]
        self._leave_key(head.trigger)
        number = UNLISTED
        if self._by_arrival:
            if (after := column.head()) is not None:
                number = _arrived(after)
        elif column.size:
            number = column.turn = self._stride(column) if self._turns else self._next_turn()
        column.number = number
        if number == UNLISTED:
            heappop(column.heap)
        else:
            heapreplace(column.heap, (number, column))

    def _stride(self, column: TableColumn) -> int:
        """The column's next number, where kinds have turns of their own.

        It counts from the highest turn served in its row, not from the column's own: what was
        full or empty meanwhile has no turns to catch up.
        """
        row = column.row
        row.top = max(row.top, column.turn >> NUMBER_BITS)
        return row.top + column.kind.step << NUMBER_BITS | self._next_turn()

    def _hold(self, kind: Kind, trigger: Trigger) -> None:
        """Hold the trigger's lane back, in every column of the kind."""
        lane = lane_of(trigger)
        causes = {trigger.ordering_key: None, trigger.fairness_key: None}
        if len(causes) > 1:
            causes.pop(None, None)
        kind.held[lane] = tuple(causes)
        for cause in causes:
            self._held.setdefault(cause, {})[kind.name, lane] = None
        for column in kind.columns:
            self._list(column)

    def _number_of(self, column: TableColumn) -> int:
        if not self._by_arrival:
            return column.turn
        head = column.head()
        return _arrived(column.items()[0] if head is None else head)


def _arrived(item: Item) -> int:
    """When the item arrived here: by the owner's counter.  Never the same for two."""
    return item.level.seq << 32 | item.arrival & 0xFFFF_FFFF
