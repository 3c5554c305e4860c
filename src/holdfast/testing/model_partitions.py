"""The model's partitions: backlogs, owners and leases in their simplest true form."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from holdfast.clock import Clock
from holdfast.ids import NodeId
from holdfast.store import (
    START,
    ZERO,
    Column,
    Counters,
    Entry,
    Holding,
    Level,
    LevelCursor,
    Loaded,
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


class ModelPartitions:
    partitions = 8

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._queues: dict[str, list[Partition]] = {}
        self._leases: dict[NodeId, Lease] = {}

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
        self, node: NodeId, *, lease_s: float, queues: Sequence[str], kinds: Sequence[str]
    ) -> None:
        until = self._clock.now() + timedelta(seconds=lease_s)
        self._leases[node] = Lease(tuple(queues), tuple(kinds), until)

    async def members(self) -> list[Member]:
        return [
            Member(node, lease.queues, lease.kinds, self._is_alive(node))
            for node, lease in sorted(self._leases.items())
        ]

    async def leave(self, nodes: Collection[NodeId], *, ended_only: bool = False) -> None:
        alive = {m.node for m in await self.members() if m.is_alive} if ended_only else set()
        nodes = [node for node in nodes if node not in alive]
        for node in nodes:
            self._leases.pop(node, None)
        for row in [row for rows in self._queues.values() for row in rows if row.owner in nodes]:
            row.owner = None
        self._give_back_shares(nodes)

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
