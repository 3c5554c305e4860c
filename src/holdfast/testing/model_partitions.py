"""The model's partitions: backlogs, owners and leases in their simplest true form."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from holdfast.clock import Clock
from holdfast.ids import NodeId
from holdfast.ring import DutyRecord, Kept
from holdfast.store import (
    NO_FACTS,
    START,
    ZERO,
    Column,
    Counters,
    Entry,
    Holding,
    Level,
    LevelCursor,
    Loaded,
    Look,
    Mark,
    Member,
    Position,
    Record,
    Running,
    Tail,
)
from holdfast.task import Trigger


@dataclass
class Partition:
    owner: NodeId | None = None
    epoch: int = 0
    wish: NodeId | None = None
    position: Position = START
    marks: dict[Column, Mark] = field(default_factory=dict)
    lines: dict[Column, dict[Level, Trigger]] = field(default_factory=dict)
    counters: dict[Column, Counters] = field(default_factory=dict)


@dataclass(frozen=True)
class Lease:
    queues: tuple[str, ...]
    kinds: tuple[str, ...]
    until: datetime
    number: int
    started_at: datetime
    facts: Mapping[str, Any]
    asked: str | None = None


@dataclass
class Duty:
    number: int
    holder: NodeId | None
    due_at: datetime


class ModelPartitions:
    partitions = 8

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._queues: dict[str, list[Partition]] = {}
        self._leases: dict[NodeId, Lease] = {}
        self._duties: dict[str, Duty] = {}

    def _rows(self, queue: str) -> list[Partition]:
        return self._queues.setdefault(queue, [Partition() for _ in range(self.partitions)])

    def _running(self) -> list[tuple[str, Running]]:
        raise NotImplementedError

    def _is_alive(self, node: NodeId) -> bool:
        return node in self._leases and self._leases[node].until > self._clock.now()

    # Backlogs

    async def claim(self, queue: str, wanted: Mapping[int, int], *, node: NodeId) -> dict[int, int]:
        taken = {}
        for partition, epoch in wanted.items():
            row = self._rows(queue)[partition]
            is_taken = row.owner not in (None, node) and row.owner and self._is_alive(row.owner)
            if row.epoch == epoch and not is_taken:
                row.owner, row.epoch, row.wish = node, epoch + 1, None
                taken[partition] = row.epoch
        return taken

    async def load(self, queue: str, partitions: Collection[int]) -> list[Loaded]:
        return [self._loaded(queue, partition) for partition in sorted(partitions)]

    def _loaded(self, queue: str, partition: int) -> Loaded:
        row = self._rows(queue)[partition]
        ends = {column: max(line) for column, line in row.lines.items() if line}
        nothing = Mark(ZERO)
        return Loaded(
            partition=partition,
            position=row.position,
            marks=dict(row.marks),
            columns={
                column: Tail(end, row.lines[column][end].fairness_key)
                for column, end in ends.items()
                if end > row.marks.get(column, nothing).ack_level
            },
            running=[
                one for of, one in self._running() if (of, one.partition) == (queue, partition)
            ],
            counters={column: dict(counters) for column, counters in row.counters.items()},
        )

    async def record(self, queue: str, records: Sequence[Record]) -> set[int]:
        rows = self._rows(queue)
        refused = {one.partition for one in records if rows[one.partition].epoch != one.epoch}
        for one in records:
            if one.partition not in refused:
                _write(rows[one.partition], one)
        return refused

    async def levels(self, queue: str, cursors: Sequence[LevelCursor]) -> list[list[Entry]]:
        return [self._page(queue, cursor) for cursor in cursors]

    async def count_levels(self, queue: str, cursors: Sequence[LevelCursor]) -> list[int]:
        return [len(self._page(queue, cursor)) for cursor in cursors]

    def _page(self, queue: str, cursor: LevelCursor) -> list[Entry]:
        line = self._rows(queue)[cursor.partition].lines.get(cursor.column, {})
        above = sorted(level for level in line if level > cursor.level)
        lane = cursor.column.lane
        return [Entry(level, line[level], lane) for level in above[: cursor.limit]]

    # Leases

    async def renew(
        self,
        node: NodeId,
        *,
        lease_s: float,
        queues: Sequence[str],
        kinds: Sequence[str],
        facts: Mapping[str, Any] = NO_FACTS,
    ) -> None:
        now = self._clock.now()
        highest = max((lease.number for lease in self._leases.values()), default=0)
        new = Lease((), (), now, highest + 1, now, {})
        self._leases[node] = replace(
            self._leases.get(node, new),
            queues=tuple(queues),
            kinds=tuple(kinds),
            until=now + timedelta(seconds=lease_s),
            facts=dict(facts),
        )

    async def members(self) -> list[Member]:
        now = self._clock.now()
        return [
            Member(
                node,
                lease.queues,
                lease.kinds,
                self._is_alive(node),
                lease.number,
                (lease.until - now).total_seconds(),
                lease.started_at,
                lease.facts,
                lease.asked,
            )
            for node, lease in sorted(self._leases.items())
        ]

    async def look(self, queues: Collection[str]) -> Look:
        holdings = {queue: await self.holdings(queue) for queue in queues}
        version = await self.rules_version()
        return Look(await self.members(), holdings, await self.duties(), version)

    async def rules_version(self) -> int:
        raise NotImplementedError

    async def end(self, nodes: Collection[NodeId]) -> None:
        now = self._clock.now()
        for node in set(nodes) & self._leases.keys():
            lease = self._leases[node]
            self._leases[node] = replace(lease, until=min(now, lease.until))
        self._let_go_of_all(nodes)

    async def ask(self, node: NodeId, what: str | None) -> bool:
        if node not in self._leases:
            return False
        self._leases[node] = replace(self._leases[node], asked=what)
        return True

    async def leave(self, nodes: Collection[NodeId], *, ended_only: bool = False) -> None:
        alive = {m.node for m in await self.members() if m.is_alive} if ended_only else set()
        nodes = [node for node in nodes if node not in alive]
        for node in nodes:
            self._leases.pop(node, None)
        self._let_go_of_all(nodes)
        self._give_back_shares(nodes)

    def _let_go_of_all(self, nodes: Collection[NodeId]) -> None:
        for row in [row for rows in self._queues.values() for row in rows if row.owner in nodes]:
            row.owner = None
        for duty in self._duties.values():
            if duty.holder in nodes:
                duty.holder, duty.due_at = None, self._clock.now()

    def _give_back_shares(self, nodes: Collection[NodeId]) -> None:
        raise NotImplementedError

    async def holdings(self, queue: str) -> list[Holding]:
        return [
            Holding(partition, row.owner, row.epoch, row.wish)
            for partition, row in enumerate(self._rows(queue))
        ]

    async def let_go(self, queue: str, partitions: Collection[int], *, node: NodeId) -> None:
        for partition in partitions:
            if (row := self._rows(queue)[partition]).owner == node:
                row.owner = None

    async def wish(self, queue: str, partitions: Collection[int], *, node: NodeId) -> None:
        for partition in partitions:
            self._rows(queue)[partition].wish = node

    # Duties

    async def duties(self) -> list[DutyRecord]:
        now = self._clock.now()
        return [
            DutyRecord(name, duty.number, duty.holder, (duty.due_at - now).total_seconds())
            for name, duty in sorted(self._duties.items())
        ]

    async def keep_duties(self, kept: Sequence[Kept], *, node: NodeId) -> set[str]:
        now, written = self._clock.now(), set()
        for name, number, rest_s in kept:
            latest = self._duties[name].number if name in self._duties else 0
            if latest == number:
                self._duties[name] = Duty(number + 1, node, now + timedelta(seconds=rest_s))
                written.add(name)
        return written


def _write(row: Partition, one: Record) -> None:
    for level, trigger, lane in one.entries:
        column = Column(trigger.priority, trigger.kind, lane)
        row.lines.setdefault(column, {}).setdefault(level, trigger)
    row.position = one.position or row.position
    row.marks |= one.marks
    row.counters |= one.counters
    for column, (low, high) in one.trims.items():
        line = row.lines.get(column, {})
        row.lines[column] = {at: line[at] for at in line if not low < at <= high}
