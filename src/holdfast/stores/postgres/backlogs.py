"""The dispatcher's role: partitions, arrivals and the durable backlog."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import asyncpg

from holdfast.ids import NodeId
from holdfast.store import (
    START,
    ZERO,
    Arrivals,
    Column,
    Cursor,
    Entry,
    Level,
    LevelCursor,
    Loaded,
    Mark,
    Position,
    Record,
    Running,
    Tail,
)
from holdfast.stores.counters import packed, unpacked
from holdfast.stores.postgres.connection import Database
from holdfast.stores.postgres.rows import alike, made
from holdfast.task import Trigger

LAST_XID = 2**64 - 1
MARKS_KEPT_MAX = 64  # of one column, before the older ones are deleted
_POSITION = Column(-1, "")  # the column under which a partition's position is kept


class _Written(NamedTuple):
    """Marks of one column that this process wrote: first and last number, and how many."""

    first: int
    last: int
    amount: int


class PostgresBacklogs:
    """`holdfast.store.Backlogs`: the promises are written there."""

    _database: Database
    _written: dict[tuple[str, int, int, str], _Written]

    async def claim(self, queue: str, wanted: Mapping[int, int], *, node: NodeId) -> dict[int, int]:
        if not wanted:
            return {}
        partitions = sorted(wanted)
        params = {
            "queue": queue,
            "partitions": partitions,
            "epochs": [wanted[partition] for partition in partitions],
            "node": node,
        }
        claimed = dict(await self._database.write("claim", params))
        self._forget_written(queue, claimed)
        return claimed

    async def load(self, queue: str, partitions: Collection[int]) -> list[Loaded]:
        if not partitions:
            return []
        params = {"queue": queue, "partitions": sorted(partitions)}
        loaded = {each: Loaded(each, START, {}, {}, []) for each in sorted(partitions)}
        positions: dict[int, Position] = {}
        for partition, priority, kind, pass_, seq, top in await self._database.read(
            "load_marks", params
        ):
            if (column := Column(priority, kind)) == _POSITION:
                positions[partition] = Position(pass_, seq)
            else:
                loaded[partition].marks[column] = Mark(Level(pass_, seq), top)
        for partition, priority, kind, lane, pass_, seq, key in await self._database.read(
            "load_columns", params
        ):
            column, level = Column(priority, kind, lane), Level(pass_, seq)
            mark = loaded[partition].marks.get(column)
            if level > (ZERO if mark is None else mark.ack_level):
                loaded[partition].columns[column] = Tail(level, key)
        for partition, priority, kind, passes in await self._database.read("load_counters", params):
            loaded[partition].counters[Column(priority, kind)] = unpacked(passes)
        for row in await self._database.read("load_running", params):
            running = Running._make(row)
            loaded[running.partition].running.append(running)
        return [
            replace(each, position=positions.get(each.partition, START)) for each in loaded.values()
        ]

    async def arrivals(
        self, queue: str, cursors: Sequence[Cursor], *, limit: int, exact: bool
    ) -> Arrivals:
        params = {
            "queue": queue,
            "partitions": [cursor.partition for cursor in cursors],
            "arriveds": [cursor.position.arrived for cursor in cursors],
            "ids": [cursor.position.id for cursor in cursors],
            "untils": [LAST_XID if c.until is None else c.until for c in cursors],
            "limit": limit,
            "exact": exact,
        }
        head, *rows = await self._database.read("arrivals", params)
        triggers = [
            made(
                Trigger,
                (id, version, queue, partition, kind, priority, fair, weight, key, None, arrived),
            )
            for id, version, partition, kind, priority, fair, weight, key, arrived, _ in rows
        ]
        xmin, _, open_xids = head[-1].split(":")
        return Arrivals(
            triggers, int(xmin), frozenset(map(int, filter(None, open_xids.split(","))))
        )

    async def record(self, queue: str, records: Sequence[Record]) -> set[int]:
        if not records:
            return set()
        in_order = sorted(records, key=lambda record: record.partition)
        params = {
            "queue": queue,
            "partitions": [record.partition for record in in_order],
            "epochs": [record.epoch for record in in_order],
            **_entries(in_order),
            **_trims(in_order),
            **self._marks(queue, in_order),
            **_counters(in_order),
        }
        fenced = set()
        for partition, priority, kind, number in await self._recorded(params):
            if number is None:
                fenced.add(partition)
            else:
                self._note_written((queue, partition, priority, kind), number)
        refused = {record.partition for record in in_order} - fenced
        self._forget_written(queue, refused)
        return refused

    async def levels(self, queue: str, cursors: Sequence[LevelCursor]) -> list[list[Entry]]:
        if not cursors:
            return []
        found: list[list[Entry]] = [[] for _ in cursors]
        for row in await self._database.read("levels", _above(queue, cursors)):
            place, pass_, seq, id, version, fair, weight, key, arrived = row
            partition, (priority, kind, lane), _, _ = cursors[place - 1]
            trigger = made(
                Trigger,
                (id, version, queue, partition, kind, priority, fair, weight, key, None, arrived),
            )
            found[place - 1].append(made(Entry, (made(Level, (pass_, seq)), trigger, lane)))
        return found

    async def count_levels(self, queue: str, cursors: Sequence[LevelCursor]) -> list[int]:
        if not cursors:
            return []
        rows = await self._database.read("count_levels", _above(queue, cursors))
        counted = dict(rows)
        return [counted[place] for place in range(1, len(cursors) + 1)]

    async def _recorded(self, params: dict[str, Any]) -> list[Any]:
        try:
            return await self._database.write("record", params | {"again": False})
        except asyncpg.UniqueViolationError:
            # Some of these levels were written by an earlier call, whose reply was lost.
            return await self._database.write("record", params | {"again": True})

    def _marks(self, queue: str, records: Iterable[Record]) -> dict[str, Any]:
        """The marks to append, and ranges of older ones to delete, with both ends."""
        rows: list[tuple[int, int, str, int, int, int]] = []
        old: list[tuple[int, int, str, int, int]] = []
        for record in records:
            if record.position is not None:
                rows.append((record.partition, *_POSITION[:2], *record.position, 0))
            for column, mark in record.marks.items():
                assert not column.lane, "a lane has no mark: what is decided is deleted"
                rows.append((record.partition, *column[:2], *mark.ack_level, mark.top_pass))
        for partition, priority, kind, *_ in rows:
            written = self._written.get((queue, partition, priority, kind))
            if written is not None and written.amount >= MARKS_KEPT_MAX:
                old.append((partition, priority, kind, written.first, written.last))
        marks = _columns("mark", "partitions priorities kinds passes seqs top_passes", rows)
        return marks | _columns("old", "partitions priorities kinds froms tos", old)

    def _note_written(self, place: tuple[str, int, int, str], number: int) -> None:
        written = self._written.get(place)
        if written is None:
            # What earlier owners wrote starts at 0 and is deleted with our first range.
            self._written[place] = _Written(0, number, 1)
        elif written.amount >= MARKS_KEPT_MAX:
            self._written[place] = _Written(written.last, number, 2)
        else:
            self._written[place] = _Written(written.first, number, written.amount + 1)

    def _forget_written(self, queue: str, partitions: Collection[int]) -> None:
        if partitions:
            for place in [each for each in self._written if each[0] == queue]:
                if place[1] in partitions:
                    del self._written[place]


def _above(queue: str, cursors: Sequence[LevelCursor]) -> dict[str, Any]:
    return {
        "queue": queue,
        "partitions": [cursor.partition for cursor in cursors],
        "priorities": [cursor.column.priority for cursor in cursors],
        "kinds": [cursor.column.kind for cursor in cursors],
        "lanes": [cursor.column.lane for cursor in cursors],
        "passes": [cursor.level.pass_ for cursor in cursors],
        "seqs": [cursor.level.seq for cursor in cursors],
        "limits": [cursor.limit for cursor in cursors],
    }


def _entries(records: Sequence[Record]) -> dict[str, Any]:
    levels = [entry.level for record in records for entry in record.entries]
    triggers = [entry.trigger for record in records for entry in record.entries]
    return {
        "entry_partitions": [record.partition for record in records for _ in record.entries],
        "entry_passes": [level.pass_ for level in levels],
        "entry_seqs": [level.seq for level in levels],
        "entry_tasks": [trigger.id for trigger in triggers],
        "entry_arriveds": [trigger.arrived for trigger in triggers],
        **_alike("priority", "priorities", [trigger.priority for trigger in triggers]),
        **_alike("kind", "kinds", [trigger.kind for trigger in triggers]),
        **_alike("version", "versions", [trigger.version for trigger in triggers]),
        **_alike("weight", "weights", [trigger.weight for trigger in triggers]),
        **_alike("fairness_key", "fairness_keys", [trigger.fairness_key for trigger in triggers]),
        **_alike("ordering_key", "ordering_keys", [trigger.ordering_key for trigger in triggers]),
        **_alike("lane", "lanes", [entry.lane for record in records for entry in record.entries]),
    }


def _alike(one: str, many: str, values: Sequence[Any]) -> dict[str, Any]:
    return alike(f"entry_{one}", f"entry_{many}", values)


def _trims(records: Iterable[Record]) -> dict[str, Any]:
    rows = [
        (record.partition, *column, *above, *to)
        for record in records
        for column, (above, to) in record.trims.items()
    ]
    names = "partitions priorities kinds lanes from_passes from_seqs to_passes to_seqs"
    return _columns("trim", names, rows)


def _counters(records: Iterable[Record]) -> dict[str, Any]:
    rows = [
        (record.partition, *column[:2], packed(counters))
        for record in records
        for column, counters in record.counters.items()
    ]
    return _columns("counter", "partitions priorities kinds passes", rows)


def _columns(prefix: str, names: str, rows: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
    """Rows as one array for each column, under the parameters' names."""
    each = names.split()
    arrays: Iterable[Sequence[Any]] = zip(*rows, strict=True) if rows else ([] for _ in each)
    return {f"{prefix}_{name}": array for name, array in zip(each, arrays, strict=True)}
