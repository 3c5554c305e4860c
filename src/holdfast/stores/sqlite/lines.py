"""Backlogs, arrivals and partitions, as operations on a connection."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from holdfast.ids import NodeId
from holdfast.store import (
    Arrivals,
    Column,
    Cursor,
    Entry,
    Holding,
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
from holdfast.stores.sqlite.statements import as_list, run, run_many
from holdfast.task import TaskId, Trigger


def make_partitions(db: sqlite3.Connection, queue: str, count: int) -> None:
    if len(run(db, "holdings", queue=queue)) < count:
        run_many(db, "make_partition", [(queue, number) for number in range(count)])


def holdings(db: sqlite3.Connection, queue: str) -> list[Holding]:
    return [Holding._make(row[:4]) for row in run(db, "holdings", queue=queue)]


def claim(
    db: sqlite3.Connection,
    queue: str,
    wanted: Mapping[int, int],
    *,
    node: NodeId,
    is_alive: Callable[[str], bool],
) -> dict[int, int]:
    taken: dict[int, int] = {}
    owners = {holding.partition: holding.owner for holding in holdings(db, queue)}
    for partition, epoch in wanted.items():
        owner = owners.get(partition)
        if owner not in (None, node) and is_alive(str(owner)):
            continue
        raised = run(db, "claim", queue=queue, partition=partition, epoch=epoch, node=node)
        if raised:
            taken[partition] = raised[0][0]
    return taken


def load(db: sqlite3.Connection, queue: str, partitions: Collection[int]) -> list[Loaded]:
    positions = {row[0]: Position(row[4], row[5]) for row in run(db, "holdings", queue=queue)}
    running = [Running._make(row) for row in run(db, "running", queue=queue)]
    return [
        Loaded(
            partition=partition,
            position=positions.get(partition, Position(0, 0)),
            marks=(marks := _marks(db, queue, partition)),
            columns=_columns(db, queue, partition, marks),
            running=[row for row in running if row.partition == partition],
            counters=_counters(db, queue, partition),
        )
        for partition in partitions
    ]


def _marks(db: sqlite3.Connection, queue: str, partition: int) -> dict[Column, Mark]:
    return {
        Column(priority, kind): Mark(Level(ack_pass, ack_seq), top_pass)
        for priority, kind, ack_pass, ack_seq, top_pass in run(
            db, "marks", queue=queue, partition=partition
        )
    }


def _counters(
    db: sqlite3.Connection, queue: str, partition: int
) -> dict[Column, dict[str | None, int]]:
    return {
        Column(priority, kind): unpacked(passes)
        for priority, kind, passes in run(db, "counters", queue=queue, partition=partition)
    }


def _columns(
    db: sqlite3.Connection, queue: str, partition: int, marks: Mapping[Column, Mark]
) -> dict[Column, Tail]:
    where: dict[str, Any] = {"queue": queue, "partition": partition}
    column = Column(-1, "")
    columns: dict[Column, Tail] = {}
    while found := run(db, "next_column", **where, **column._asdict()):
        column = Column._make(found[0])
        pass_, seq, key = run(db, "last_level", **where, **column._asdict())[0]
        tail = Tail(Level(pass_, seq), key)
        if column not in marks or tail.level > marks[column].ack_level:
            columns[column] = tail
    return columns


def arrivals(db: sqlite3.Connection, queue: str, cursors: Sequence[Cursor], limit: int) -> Arrivals:
    """There is one writer: whatever is visible is complete up to the counter's number."""
    horizon = run(db, "last_arrived")[0][0] + 1
    rows: list[tuple[Any, ...]] = []
    # No number was given since: an idle node asks nothing of its partitions.
    behind = [(one.partition, one.position[0]) for one in cursors if one.position[0] < horizon]
    if behind:
        behind = run(db, "arrivals_where", queue=queue, cursors=as_list(behind))
    wanted = {partition for partition, *_ in behind}
    for partition, (arrived, id), until in cursors:
        if partition not in wanted:
            continue
        where = {"queue": queue, "partition": partition, "arrived": arrived}
        page = run(db, "arrivals_same", **where, id=id, limit=limit)
        if len(page) < limit:
            page += run(db, "arrivals_later", **where, limit=limit - len(page))
        rows += page if until is None else [row for row in page if row[-1] < until]
    return Arrivals([Trigger._make(row) for row in rows], horizon)


def levels(db: sqlite3.Connection, queue: str, cursors: Sequence[LevelCursor]) -> list[list[Entry]]:
    return [_page(db, queue, cursor) for cursor in cursors]


def count_levels(db: sqlite3.Connection, queue: str, cursors: Sequence[LevelCursor]) -> list[int]:
    return [run(db, "count_levels", **_above(queue, cursor))[0][0] for cursor in cursors]


def _above(queue: str, cursor: LevelCursor) -> dict[str, Any]:
    partition, column, (pass_, seq), limit = cursor
    where = {"queue": queue, "partition": partition, **column._asdict()}
    return {**where, "pass": pass_, "seq": seq, "limit": limit}


def _page(db: sqlite3.Connection, queue: str, cursor: LevelCursor) -> list[Entry]:
    partition, (priority, kind, lane), _, _ = cursor
    rows = run(db, "levels", **_above(queue, cursor))
    return [
        Entry(
            Level(row[0], row[1]),
            Trigger(
                TaskId(row[2]),
                row[3],
                queue,
                partition,
                kind,
                priority,
                row[4],
                row[5],
                row[6],
                None,
                row[7],
            ),
            lane,
        )
        for row in rows
    ]


def record(db: sqlite3.Connection, queue: str, records: Sequence[Record]) -> set[int]:
    """The epochs are read under the write lock: no takeover can come between check and write."""
    epochs = {holding.partition: holding.epoch for holding in holdings(db, queue)}
    kept = [one for one in records if epochs.get(one.partition) == one.epoch]
    run_many(
        db, "append", [_entry(queue, one.partition, entry) for one in kept for entry in one.entries]
    )
    for one in kept:
        _record_rest(db, queue, one)
    return {one.partition for one in records if epochs.get(one.partition) != one.epoch}


def _record_rest(db: sqlite3.Connection, queue: str, one: Record) -> None:
    where: dict[str, Any] = {"queue": queue, "partition": one.partition}
    if one.position is not None:
        run(db, "move_position", **where, **one.position._asdict())
    for column, mark in one.marks.items():
        assert not column.lane, "a lane has no mark: what is decided is deleted"
        run(
            db,
            "mark",
            **where,
            priority=column.priority,
            kind=column.kind,
            ack_pass=mark.ack_level.pass_,
            ack_seq=mark.ack_level.seq,
            top_pass=mark.top_pass,
        )
    for column, (low, high) in one.trims.items():
        ends = {"from_pass": low.pass_, "from_seq": low.seq}
        ends |= {"to_pass": high.pass_, "to_seq": high.seq}
        run(db, "trim", **where, **column._asdict(), **ends)
    for column, counters in one.counters.items():
        passes = packed(counters)
        run(db, "counter", **where, priority=column.priority, kind=column.kind, passes=passes)


def _entry(queue: str, partition: int, entry: Entry) -> tuple[Any, ...]:
    (pass_, seq), trigger, lane = entry
    return (
        queue,
        partition,
        trigger.priority,
        trigger.kind,
        lane,
        pass_,
        seq,
        trigger.id,
        trigger.version,
        trigger.fairness_key,
        trigger.weight,
        trigger.ordering_key,
        trigger.arrived,
    )
