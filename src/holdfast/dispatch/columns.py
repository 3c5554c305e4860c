"""One column of the trigger table: the triggers of one (priority, kind), by level.

Most triggers come in level order and stand in `line`, where both ends cost the same whatever the
length.  The others stand in a heap, `late`.  The triggers of a key that is set aside stand in a
side line; a side line whose key was released takes part again with its head alone.

A trigger that leaves from the middle stays where it stands and is skipped at the head: it is dead
once the table's own dict no longer holds it.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterator
from heapq import heapify, heappop, heappush, heapreplace
from typing import NamedTuple

from holdfast.store import Level
from holdfast.task import TaskId, Trigger

DEAD_MAX = 64

UNLISTED = 0


class Item(NamedTuple):
    """A trigger in the table."""

    trigger: Trigger
    level: Level
    arrival: int  # the table's own number; it only ever grows


Key = str | None
Place = tuple[Level, int, Item]


class SideLine:
    """The triggers of one key that came to the head while the key was set aside, by level."""

    __slots__ = ("items", "key")

    def __init__(self, key: Key) -> None:
        self.key = key
        self.items: deque[Item] = deque()

    def add(self, item: Item) -> None:
        if self.items and item.level < self.items[-1].level:
            insort(self.items, item, key=_level)
        else:
            self.items.append(item)


class Kind:
    """What all columns of a kind share."""

    __slots__ = ("columns", "held", "is_full", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_full = False  # refused since a slot was freed
        self.held: dict[Key, tuple[Key, ...]] = {}  # keys set aside -> what releases them
        self.columns: list[TableColumn] = []


class TableColumn:
    """The triggers of one (priority, kind)."""

    __slots__ = (
        "_alive",
        "_dead",
        "_late",
        "_line",
        "_rejoined",
        "_sides",
        "heap",
        "kind",
        "number",
        "size",
        "turn",
    )

    def __init__(
        self, kind: Kind, heap: list[tuple[int, TableColumn]], alive: dict[TaskId, Item]
    ) -> None:
        self.kind = kind
        self.heap = heap  # the columns of its priority
        self.number = UNLISTED  # its valid place in that heap
        self.turn = 0
        self.size = 0  # triggers that are alive, those set aside included
        self._alive = alive
        self._dead = 0
        self._line: deque[Item] = deque()
        self._late: list[Place] = []
        self._sides: dict[Key, SideLine] = {}
        self._rejoined: list[tuple[Level, int, Item, SideLine]] = []

    def add(self, item: Item) -> bool:
        """Put the item into its place; True when it may be the head now."""
        self.size += 1
        line = self._line
        if line and item.level < line[-1].level:
            heappush(self._late, (item.level, item.arrival, item))
            return True
        line.append(item)
        return len(line) == 1

    def head(self) -> Item | None:
        """The first item whose key is not set aside."""
        line = self._line
        if self._late or self._dead or self._sides or self.kind.held:
            return self._first()
        return line[0] if line else None

    def pop(self, head: Item) -> None:
        """Remove the head."""
        self.size -= 1
        if self._line and self._line[0] is head:
            self._line.popleft()
        elif self._late and self._late[0][2] is head:
            heappop(self._late)
        else:
            side = self._rejoined[0][3]
            assert side.items[0] is head, "only the head leaves a column"
            self._pop_side(side)

    def remove(self, item: Item) -> None:
        """Forget an item, wherever it stands, once it has left the table's dict."""
        self.size -= 1
        if self._line and self._line[-1] is item:
            self._line.pop()  # what a window drops comes from its far end, highest first
            return
        self._dead += 1
        if self._dead > self.size + DEAD_MAX:
            self._compact()

    def release(self, key: Key) -> None:
        """Let the side line of a key take part again."""
        side = self._sides.get(key)
        if side is not None:
            self._rejoin(side)

    def items(self) -> list[Item]:
        """Everything alive, by level."""
        return sorted(filter(self._is_alive, self._everything()), key=_level)

    def _first(self) -> Item | None:
        self._clear_line()
        self._clear_late()
        self._clear_rejoined()
        first = self._line[0] if self._line else None
        if self._late and (first is None or self._late[0][0] < first.level):
            first = self._late[0][2]
        if self._rejoined and (first is None or self._rejoined[0][0] < first.level):
            first = self._rejoined[0][2]
        return first

    def _clear_line(self) -> None:
        line = self._line
        while line and self._leaves(line[0]):
            line.popleft()

    def _clear_late(self) -> None:
        late = self._late
        while late and self._leaves(late[0][2]):
            heappop(late)

    def _leaves(self, item: Item) -> bool:
        """Whether an item at the front does not count: it is dead, or goes to its side line."""
        if not self._is_alive(item):
            self._dead -= 1
            return True
        held = self.kind.held
        if held and (key := key_of(item.trigger)) in held:
            self._sides.setdefault(key, SideLine(key)).add(item)
            return True
        return False

    def _clear_rejoined(self) -> None:
        while self._rejoined:
            _, _, item, side = self._rejoined[0]
            if not side.items or side.items[0] is not item or side.key in self.kind.held:
                heappop(self._rejoined)  # out of date, or set aside again
            elif self._is_alive(item):
                return
            else:
                self._dead -= 1
                self._pop_side(side)

    def _pop_side(self, side: SideLine) -> None:
        """Remove the head of the side line that is first among those that take part."""
        side.items.popleft()
        if side.items:
            item = side.items[0]
            heapreplace(self._rejoined, (item.level, item.arrival, item, side))
        else:
            heappop(self._rejoined)
            del self._sides[side.key]

    def _rejoin(self, side: SideLine) -> None:
        item = side.items[0]
        heappush(self._rejoined, (item.level, item.arrival, item, side))

    def _is_alive(self, item: Item) -> bool:
        return self._alive.get(item.trigger.id) is item

    def _everything(self) -> Iterator[Item]:
        yield from self._line
        yield from (item for _, _, item in self._late)
        for side in self._sides.values():
            yield from side.items

    def _compact(self) -> None:
        """Let go of the dead, so that memory is bounded by what is alive."""
        self._line = deque(filter(self._is_alive, self._line))
        self._late = [place for place in self._late if self._is_alive(place[2])]
        heapify(self._late)
        self._rejoined = []
        for side in list(self._sides.values()):
            side.items = deque(filter(self._is_alive, side.items))
            if not side.items:
                del self._sides[side.key]
            elif side.key not in self.kind.held:
                self._rejoin(side)
        self._dead = 0


def key_of(trigger: Trigger) -> Key:
    """What is set aside together: the ordering key, else the fairness key, else all without one."""
    return trigger.fairness_key if trigger.ordering_key is None else trigger.ordering_key


def _level(item: Item) -> Level:
    return item.level
