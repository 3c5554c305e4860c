"""The trigger table: what this node could start next, in the order it should.

    priority 0   mail    ▸ (7,3) (7,9) …        one column for each (priority, kind),
                 payout  ▸ (2,1) (2,4) …        in it the triggers by level (pass, seq)
    priority 5   mail    ▸ (9,2) …

A search goes from the first priority to the last and looks at heads only.  Within a priority the
columns stand in a heap, by whose turn it is ("fair") or by whose head arrived first ("arrival").
A kind that has no room leaves the heaps until a slot is freed, so a search asks it once and later
searches not at all; it keeps its number meanwhile, so it loses nothing but its turn.

A key that is refused alone is set aside: its triggers leave the line for a side line as they come
to the head, and that whole side line competes again when the key is released.  So each trigger is
moved once, however often its key is refused.

Nothing here is durable: if the process dies, the next owner reads the triggers from the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush, heapreplace
from itertools import count
from typing import Literal

from holdfast.booking import Full
from holdfast.dispatch.columns import UNLISTED, Item, Key, Kind, TableColumn, key_of
from holdfast.store import Level
from holdfast.task import TaskId, Trigger

Book = Callable[[Trigger], Full | None]
Order = Literal["fair", "arrival"]

COLUMNS_KEPT_MAX = 256


class Row:
    """The columns of one priority."""

    __slots__ = ("columns", "heap")

    def __init__(self) -> None:
        self.columns: dict[str, TableColumn] = {}
        # (number, column); a pair whose number is no longer the column's own is out of date.
        self.heap: list[tuple[int, TableColumn]] = []


class TriggerTable:
    """One table per queue, over all partitions of a node."""

    def __init__(
        self,
        *,
        order: Order = "fair",
        size_max: int = 10_000,
        counting: Callable[[int], Iterator[int]] = count,
    ) -> None:
        """`counting` gives the numbers of arrivals and turns: from a start, always increasing."""
        self._by_arrival = order == "arrival"
        self._size_max = size_max
        self._next_arrival = counting(1).__next__
        self._next_turn = counting(1).__next__
        self._items: dict[TaskId, Item] = {}
        self._kinds: dict[str, Kind] = {}
        self._rows: dict[int, Row] = {}  # by priority, first to last
        self._full: list[Kind] = []
        # What releases a key -> the keys set aside for it, by kind.
        self._set_aside: dict[Key, dict[tuple[str, Key], None]] = {}

    def __len__(self) -> int:
        return len(self._items)

    @property
    def keys_set_aside(self) -> list[Key]:
        """What `release` would answer to, the longest set aside first."""
        return list(self._set_aside)

    def add(self, trigger: Trigger, level: Level) -> bool:
        """Take the trigger in, or answer False when the table is full: the reader stops here.

        A task stands in the table once: a newer version replaces an older one, which could not be
        grabbed any more, and what is not newer changes nothing.
        """
        items = self._items
        old = items.get(trigger.id)
        if old is not None:
            if old.trigger.version >= trigger.version:
                return True
            self.remove(trigger.id)
        elif len(items) >= self._size_max:
            return False
        column = self._column(trigger)
        if not column.size:
            column.turn = self._next_turn()  # an empty column gathers no credit
        item = Item(trigger, level, self._next_arrival())
        items[trigger.id] = item
        may_lead = column.add(item)
        if column.number == UNLISTED or (may_lead and self._by_arrival):
            self._list(column)
        return True

    def size_of(self, priority: int, kind: str) -> int:
        """How many triggers of this column are here, those set aside included."""
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

    def release(self, key: Key) -> None:
        """What was refused for this ordering or fairness key takes its place in the line again."""
        for name, held in list(self._set_aside.get(key, ())):
            kind = self._kinds[name]
            for other in kind.held.pop(held):
                self._set_aside[other].pop((name, held))
                if not self._set_aside[other]:
                    del self._set_aside[other]
            for column in kind.columns:
                column.release(held)
                self._list(column)

    def remove(self, id: TaskId) -> Item | None:
        """Take out a trigger that was dropped from its window; None when it is not here."""
        item = self._items.pop(id, None)
        if item is not None:
            column = self._rows[item.trigger.priority].columns[item.trigger.kind]
            column.remove(item)
            if not column.size:
                column.number = UNLISTED  # when it fills again it takes a new turn
            elif self._by_arrival:
                self._list(column)  # the next head may have arrived before this one
        return item

    def drop_partition(self, partition: int) -> list[Item]:
        """Take out everything of a partition that this node no longer owns."""
        dropped = [item for item in self._items.values() if item.trigger.partition == partition]
        for item in dropped:
            self.remove(item.trigger.id)
        return dropped

    def waiting(self) -> Iterator[Item]:
        """What is still here, also what is set aside: by priority, then column, then level."""
        for row in self._rows.values():
            columns = [column for column in row.columns.values() if column.size]
            for column in sorted(columns, key=self._number_of):
                yield from column.items()

    def _column(self, trigger: Trigger) -> TableColumn:
        row = self._rows.get(trigger.priority)
        column = None if row is None else row.columns.get(trigger.kind)
        return self._new_column(trigger) if column is None else column

    def _new_column(self, trigger: Trigger) -> TableColumn:
        row = self._rows.get(trigger.priority)
        if row is None:
            row = Row()
            rows = {**self._rows, trigger.priority: row}
            self._rows = {priority: rows[priority] for priority in sorted(rows)}
        if len(row.columns) >= COLUMNS_KEPT_MAX:
            self._forget_empty(row)
        kind = self._kinds.get(trigger.kind)
        if kind is None:
            kind = self._kinds[trigger.kind] = Kind(trigger.kind)
        column = row.columns[trigger.kind] = TableColumn(kind, row.heap, self._items)
        kind.columns.append(column)
        return column

    def _forget_empty(self, row: Row) -> None:
        """Kinds that came once must not fill memory for ever."""
        for name, column in list(row.columns.items()):
            if not column.size:
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
        number = head.arrival if self._by_arrival else column.turn
        if number != column.number:
            column.number = number
            heappush(column.heap, (number, column))

    def _take_head(self, column: TableColumn, head: Item) -> None:
        """Remove the head of the column that is first in its heap; the column gets a new number."""
        column.pop(head)
        del self._items[head.trigger.id]
        number = UNLISTED
        if self._by_arrival:
            if (after := column.head()) is not None:
                number = after.arrival
        elif column.size:
            number = column.turn = self._next_turn()
        column.number = number
        if number == UNLISTED:
            heappop(column.heap)
        else:
            heapreplace(column.heap, (number, column))

    def _hold(self, kind: Kind, trigger: Trigger) -> None:
        """Set the trigger's key aside, in every column of the kind."""
        key = key_of(trigger)
        causes = {trigger.ordering_key: None, trigger.fairness_key: None}
        if len(causes) > 1:
            causes.pop(None, None)
        kind.held[key] = tuple(causes)
        for cause in causes:
            self._set_aside.setdefault(cause, {})[kind.name, key] = None
        for column in kind.columns:
            self._list(column)

    def _number_of(self, column: TableColumn) -> int:
        if not self._by_arrival:
            return column.turn
        head = column.head()
        return column.items()[0].arrival if head is None else head.arrival
