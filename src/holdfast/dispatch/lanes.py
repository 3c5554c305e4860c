"""The lanes of one column of the trigger table: the lines of keys that had to wait.

A key that is refused alone (limited, paused, its ordering key busy) leaves the line for a lane of
its own, as its triggers come to the head, so it never stands in anybody's way.  While it may not
go on, its lane is left alone, however long it is.

    group "acme"    lane facme     ▸ 4 6 9        lanes of one fairness key share its turns:
                    lane oinvoice7 ▸ 5 8          a tenant gains nothing by having many

When the key may go on, its head competes with a pass that is given now: the top pass, or one step
behind the last turn of its group.  So it shares from now on, without credit for the time before.
It stays in its lane until that is empty: what of the key still comes to the head of the line goes
to the end of the lane, so that the oldest is always first and the share is never doubled.

With `cost` fairness all keys have lanes, as far as there is room for them, and a turn is as long
as the handlers of the key run, compared with all: estimated when the turn is given, put right when
the run time is known.  So two keys that both wait have used the same time by weight, but for the
difference between estimate and truth of what is running now.

A lane may be longer than memory: then it goes on in the store, and what comes from the line
waits `behind` until the stored part is used up.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Container, Iterator
from heapq import heappop, heappush, heapreplace
from itertools import count
from typing import NamedTuple

from holdfast.dispatch.passes import STRIDE, Key, Passes
from holdfast.store import Level
from holdfast.task import TaskId, Trigger, lane_of

UNLISTED = 0
DEAD_MAX = 64
GROUPS_MAX = 1_000  # keys whose last turn and cost are remembered without a lane
LANES_MAX = 100  # lanes that `cost` fairness makes; the keys beyond share the line by count
COST_S_MIN = 0.000_1  # what a task costs at least


class Item(NamedTuple):
    """A trigger in the table."""

    trigger: Trigger
    level: Level
    arrival: int  # the table's own number; it only ever grows


class Lane:
    """The triggers of one key that had to wait, oldest first."""

    __slots__ = ("behind", "group", "items", "name", "stored")

    def __init__(self, name: str, group: Group) -> None:
        self.name = name
        self.group = group
        self.items: deque[Item] = deque()  # by level; the first may be started
        self.behind: deque[Item] = deque()  # by level; wait until the stored part is used up
        self.stored: set[int] = set()  # partitions that hold a part of this lane in the store

    @property
    def is_over(self) -> bool:
        return not (self.items or self.behind or self.stored)


class Group:
    """The lanes of one fairness key: they take its turns together."""

    __slots__ = ("cost_s", "heads", "key", "lanes", "number", "pass_")

    def __init__(self, key: Key, pass_: int) -> None:
        self.key = key
        self.pass_ = pass_  # of its last turn
        self.cost_s: float | None = None  # how long its handlers run
        self.number = UNLISTED  # its valid place among the groups that may go on
        self.lanes = 0
        # Heads of lanes that may go on, by level; one that is no longer the head is out of date.
        self.heads: list[tuple[Level, int, Item, Lane]] = []

    def list_head(self, lane: Lane) -> None:
        item = lane.items[0]
        heappush(self.heads, (item.level, item.arrival, item, lane))


class Lanes:
    """All lanes of a column."""

    __slots__ = (
        "_charged",
        "_cost_s",
        "_dead",
        "_groups",
        "_held",
        "_is_alive",
        "_lanes",
        "_next",
        "_passes",
        "_ready",
        "aside",
    )

    def __init__(
        self, passes: Passes, held: Container[str], is_alive: Callable[[Item], bool]
    ) -> None:
        self.aside: set[TaskId] = set()  # everything that stands in a lane
        self._passes = passes
        self._held = held
        self._is_alive = is_alive
        self._lanes: dict[str, Lane] = {}
        self._groups: dict[Key, Group] = {}
        self._ready: list[tuple[int, int, Group]] = []  # by pass; see Group.number
        self._next = count(1).__next__
        self._dead = 0
        self._cost_s = 0.0  # how long handlers of this column run
        self._charged: dict[TaskId, float] = {}  # what was estimated for those on their way

    def __bool__(self) -> bool:
        return bool(self._lanes)

    def __contains__(self, name: str) -> bool:
        return name in self._lanes

    def divert(self, item: Item) -> None:
        """Take in an item that came to the head of the line."""
        lane = self._lane(lane_of(item.trigger), item.trigger.fairness_key)
        self.aside.add(item.trigger.id)
        if lane.stored:
            _insert(lane.behind, item)
        else:
            self._add(lane, item)

    def resume(self, name: str, item: Item) -> None:
        """Take in an item that was read from the stored part of a lane."""
        self.aside.add(item.trigger.id)
        self._add(self._lane(name, item.trigger.fairness_key), item)

    def store(self, name: str, key: Key, partition: int) -> None:
        """The store holds a part of this lane from now on."""
        self._lane(name, key).stored.add(partition)

    def unstore(self, name: str, partition: int) -> None:
        """The stored part of this partition is used up, or somebody else's now."""
        lane = self._lanes.get(name)
        if lane is None:
            return
        lane.stored.discard(partition)
        if not lane.stored and lane.behind:
            lane.items, lane.behind = _merged(lane.items, lane.behind), deque()
            self.release(name)
        self._forget_if_over(lane)

    def release(self, name: str) -> None:
        """The key may go on: its head competes from now on."""
        lane = self._lanes.get(name)
        if lane is not None and lane.items:
            lane.group.list_head(lane)
            self._list(lane.group)

    def first(self) -> tuple[Level, Item] | None:
        """The first head that may go on, and the level with which it competes."""
        ready = self._ready
        while ready:
            pass_, number, group = ready[0]
            head = self._head_of(group) if number == group.number else None
            if head is not None:
                return Level(pass_, head[2].level.seq), head[2]
            heappop(ready)
            if number == group.number:
                group.number = UNLISTED
                self._forget_group(group)
        return None

    def pop(self, item: Item) -> None:
        """Remove the first head; its group has had a turn."""
        pass_, _, group = self._ready[0]
        _, _, head, lane = group.heads[0]
        assert head is item and lane.items[0] is item, "only the head leaves a lane"
        self._passes.dispatched(pass_)
        group.pass_ = pass_
        if self._passes.mode == "cost":
            self._charged[item.trigger.id] = self._estimate(group)
        heappop(group.heads)
        self.aside.discard(item.trigger.id)
        self._drop_first(lane)
        self._list(group)

    def charge(self, trigger: Trigger, ran_s: float | None) -> None:
        """The handler of this trigger ran so long, or never (None)."""
        estimated = self._charged.pop(trigger.id, None)
        group = self._groups.get(trigger.fairness_key)
        if ran_s is None:
            ran_s = 0.0
        else:
            self._cost_s = _smoothed(self._cost_s or ran_s, ran_s, 0.02)
            if group is not None:
                group.cost_s = _smoothed(group.cost_s or ran_s, ran_s, 0.2)
        if group is not None and estimated is not None:
            step = self._passes.step(trigger.fairness_key, trigger.weight)
            group.pass_ += int(step * (ran_s - estimated) / max(self._cost_s, COST_S_MIN))
            if group.number != UNLISTED:
                self._list(group)

    @property
    def held_back(self) -> int:
        """How many triggers stand in lanes that may not go on; dead ones may count."""
        lanes = (lane for name, lane in self._lanes.items() if name in self._held)
        return sum(len(lane.items) + len(lane.behind) for lane in lanes)

    def waiting(self) -> Iterator[Item]:
        """Everything in the lanes, dead items included."""
        for lane in self._lanes.values():
            yield from lane.items
            yield from lane.behind

    def forget(self, id: TaskId) -> bool:
        """An item left the table; it is skipped when its turn comes.  False: not in a lane."""
        if id not in self.aside:
            return False
        self.aside.discard(id)
        self._dead += 1
        if self._dead > len(self.aside) + DEAD_MAX:
            self._compact()
        return True

    def _compact(self) -> None:
        """Let go of the dead, so that memory is bounded by what is alive."""
        self._dead = 0
        for lane in list(self._lanes.values()):
            lane.items = deque(filter(self._is_alive, lane.items))
            lane.behind = deque(filter(self._is_alive, lane.behind))
            self._forget_if_over(lane)
        for group in self._groups.values():
            group.heads = []
        for lane in self._lanes.values():
            if lane.items:
                lane.group.list_head(lane)

    def _add(self, lane: Lane, item: Item) -> None:
        _insert(lane.items, item)
        if lane.items[0] is item and lane.name not in self._held:
            lane.group.list_head(lane)
            self._list(lane.group)

    def _head_of(self, group: Group) -> tuple[Level, int, Item, Lane] | None:
        heads = group.heads
        while heads:
            _, _, item, lane = heads[0]
            if not lane.items or lane.items[0] is not item or lane.name in self._held:
                heappop(heads)
            elif self._is_alive(item):
                return heads[0]
            else:
                heappop(heads)
                self._dead -= 1
                self._drop_first(lane)
        return None

    def _drop_first(self, lane: Lane) -> None:
        # A dead one may be back in the lane, as another item: `aside` is not touched here.
        lane.items.popleft()
        if lane.items:
            lane.group.list_head(lane)
        else:
            self._forget_if_over(lane)

    def _list(self, group: Group) -> None:
        """Give the group its place among those that may go on."""
        head = self._head_of(group)
        is_first = bool(self._ready) and self._ready[0][1] == group.number
        if head is None:
            group.number = UNLISTED
            if is_first:
                heappop(self._ready)
            self._forget_group(group)
            return
        trigger = head[2].trigger
        step = self._passes.step(trigger.fairness_key, trigger.weight)
        if self._passes.mode == "cost":
            step = max(1, int(step * self._estimate(group) / max(self._cost_s, COST_S_MIN)))
        pass_ = max(self._passes.top, group.pass_ + step)
        group.number = self._next()
        place = (pass_, group.number, group)
        if is_first:
            heapreplace(self._ready, place)
        else:
            heappush(self._ready, place)

    def _estimate(self, group: Group) -> float:
        return max(self._cost_s, COST_S_MIN) if group.cost_s is None else group.cost_s

    @property
    def has_room(self) -> bool:
        return len(self._lanes) < LANES_MAX

    def _lane(self, name: str, key: Key) -> Lane:
        lane = self._lanes.get(name)
        if lane is None:
            group = self._groups.get(key)
            if group is None:
                self._forget_groups()
                group = self._groups[key] = Group(key, self._passes.top)
            group.lanes += 1
            lane = self._lanes[name] = Lane(name, group)
        return lane

    def _forget_if_over(self, lane: Lane) -> None:
        if lane.is_over and self._lanes.pop(lane.name, None) is not None:
            lane.group.lanes -= 1
            self._forget_group(lane.group)

    def _forget_groups(self) -> None:
        if len(self._groups) > 2 * len(self._lanes) + GROUPS_MAX:
            for group in list(self._groups.values()):
                group.cost_s = group.cost_s if group.lanes else None
                self._forget_group(group)

    def _forget_group(self, group: Group) -> None:
        """Its last turn stays known as long as it says anything: rest gives no credit."""
        is_unused = not group.lanes and group.number == UNLISTED
        if is_unused and group.cost_s is None and group.pass_ < self._passes.top - STRIDE:
            self._groups.pop(group.key, None)


def _insert(items: deque[Item], item: Item) -> None:
    if items and item.level < items[-1].level:
        insort(items, item, key=_level)
    else:
        items.append(item)


def _smoothed(before: float, now: float, share: float) -> float:
    return before + share * (now - before)


def _merged(one: deque[Item], other: deque[Item]) -> deque[Item]:
    return deque(sorted([*one, *other], key=_level))


def _level(item: Item) -> Level:
    return item.level
