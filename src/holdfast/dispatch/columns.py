"""One column of the trigger table: the triggers of one (priority, kind), by level.

Most triggers come in level order and stand in `line`, where both ends cost the same whatever the
length.  The others stand in a heap, `late`.  Keys that had to wait stand in lanes.

A trigger that leaves from the middle stays where it stands and is skipped at the head: it is dead
once the table's own dict no longer holds it.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from itertools import chain

from holdfast.dispatch.lanes import DEAD_MAX, UNLISTED, Item, Lanes
from holdfast.dispatch.passes import Key, Passes
from holdfast.store import Level
from holdfast.task import TaskId, lane_of

Place = tuple[Level, int, Item]


class Kind:
    """What all columns of a kind share."""

    __slots__ = ("columns", "held", "is_full", "name", "step")

    def __init__(self, name: str, step: int) -> None:
        self.name = name
        self.step = step  # from one turn to its next, where kinds have turns of their own
        self.is_full = False  # refused since a slot was freed
        self.held: dict[str, tuple[Key, ...]] = {}  # lanes that may not go on -> what releases them
        self.columns: list[TableColumn] = []


class Row:
    """The columns of one priority."""

    __slots__ = ("columns", "heap", "top")

    def __init__(self) -> None:
        self.columns: dict[str, TableColumn] = {}
        # (number, column); a pair whose number is no longer the column's own is out of date.
        self.heap: list[tuple[int, TableColumn]] = []
        self.top = 0  # the highest turn served, where kinds have turns of their own


class TableColumn:
    """The triggers of one (priority, kind)."""

    __slots__ = (
        "_alive",
        "_dead",
        "_late",
        "_line",
        "heap",
        "kind",
        "lanes",
        "number",
        "passes",
        "row",
        "served",
        "size",
        "turn",
    )

    def __init__(
        self,
        kind: Kind,
        row: Row,
        alive: dict[TaskId, Item],
        passes: Passes,
    ) -> None:
        self.kind = kind
        self.row = row
        self.heap = row.heap  # the columns of its priority
        self.number = UNLISTED  # its valid place in that heap
        self.turn = 0
        self.size = 0  # triggers that are alive, those in lanes included
        self.served = 0  # triggers dispatched from the line, not from lanes
        self.passes = passes
        self.lanes = Lanes(passes, kind.held, self._is_alive)
        self._alive = alive
        self._dead = 0
        self._line: deque[Item] = deque()
        self._late: list[Place] = []

    def add(self, item: Item, lane: str = "") -> bool:
        """Put the item into its place; True when it may be the head now."""
        self.size += 1
        if lane:
            self.lanes.resume(lane, item)
            return True
        line = self._line
        if line and item.level < line[-1].level:
            heappush(self._late, (item.level, item.arrival, item))
            return True
        line.append(item)
        return len(line) == 1

    def head(self) -> Item | None:
        """The first item that is not held back."""
        if self._dead or self.lanes or self.kind.held or self.passes.mode == "cost":
            return self._first()
        line, late = self._line, self._late
        if late and (not line or late[0][0] < line[0].level):
            return late[0][2]
        return line[0] if line else None

    def pop(self, head: Item) -> None:
        """Remove the head: V moves."""
        self.size -= 1
        if self._line and self._line[0] is head:
            self._line.popleft()
        elif self._late and self._late[0][2] is head:
            heappop(self._late)
        else:
            self.lanes.pop(head)
            return
        self.served += 1
        self.passes.dispatched(head.level.pass_)

    def remove(self, item: Item) -> None:
        """Forget an item, wherever it stands, once it has left the table's dict."""
        self.size -= 1
        if self._line and self._line[-1] is item:
            self._line.pop()  # what a window drops comes from its far end, highest first
        elif not self.lanes.forget(item.trigger.id):
            self._dead += 1
            if self._dead > self.size + DEAD_MAX:
                self._compact()

    def items(self) -> list[Item]:
        """Everything alive, by level."""
        late = (item for _, _, item in self._late)
        everything = chain(self._line, late, self.lanes.waiting())
        return sorted(filter(self._is_alive, everything), key=_level)

    def _first(self) -> Item | None:
        while self._line and self._leaves(self._line[0]):
            self._line.popleft()
        while self._late and self._leaves(self._late[0][2]):
            heappop(self._late)
        first = self._line[0] if self._line else None
        if self._late and (first is None or self._late[0][0] < first.level):
            first = self._late[0][2]
        found = self.lanes.first()
        if found is not None and (first is None or found[0] < first.level):
            return found[1]
        return first

    def _leaves(self, item: Item) -> bool:
        """Whether an item at the front does not count: it is dead, or goes to its lane."""
        if not self._is_alive(item):
            self._dead -= 1
            return True
        by_cost = self.passes.mode == "cost" and self.lanes.has_room
        if not self.lanes and not self.kind.held and not by_cost:
            return False
        lane = lane_of(item.trigger)
        if lane not in self.kind.held and lane not in self.lanes and not by_cost:
            return False
        self.lanes.divert(item)
        return True

    def _is_alive(self, item: Item) -> bool:
        return self._alive.get(item.trigger.id) is item

    def _compact(self) -> None:
        """Let go of the dead, so that memory is bounded by what is alive."""
        self._line = deque(filter(self._is_alive, self._line))
        self._late = [place for place in self._late if self._is_alive(place[2])]
        heapify(self._late)
        self._dead = 0


def _level(item: Item) -> Level:
    return item.level
