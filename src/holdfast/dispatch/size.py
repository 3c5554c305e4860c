"""How much waits to be dispatched.  Nothing is kept for it: it is put together when somebody asks.

A trigger may be known here in several places at once: in a window, on its way to the store, in the
trigger table because it skipped the backlog, or booked while its grab is not decided.  So the tasks
in memory are counted by their ids; what is only in the store is added as each backlog estimates it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from holdfast.clock import Clock
from holdfast.dispatch.backlog import Backlog
from holdfast.dispatch.dispatcher import Dispatcher
from holdfast.dispatch.intake import Intake
from holdfast.store import START, Column, Cursor, LevelCursor, Store
from holdfast.task import Trigger

COUNTED_MAX = 10_000  # entries a partition that the store counts for an estimate


@dataclass(frozen=True, slots=True)
class BacklogSize:
    """How many tasks of a queue may run and wait for one node to dispatch them, and how long."""

    count: int
    is_exact: bool  # at the end of every backlog; otherwise the count is an estimate
    oldest_s: float | None  # since the oldest of them was enqueued; None: there is none


async def backlog_size(store: Store, dispatcher: Dispatcher, *, clock: Clock) -> BacklogSize:
    """What waits in the partitions of the dispatcher, as this node knows it now.

    While there are arrivals that it has not read, the count is not exact.
    """
    intake = dispatcher.intake
    await _count_stored(store, intake)
    oldest_s = await _oldest_s(store, intake, clock)
    # From here on nothing is awaited: all of it is of one moment.
    count, is_at_end = counted(intake, dispatcher.running)
    is_exact = is_at_end and not dispatcher.books.is_behind
    return BacklogSize(count, is_exact, oldest_s if count else None)


def counted(intake: Intake, booked: Iterable[Trigger]) -> tuple[int, bool]:
    """How many tasks wait, and whether all backlogs are at their end.  Pure.

    `booked` are the triggers that hold a slot; where the grab is decided, they wait no more.
    """
    backlogs = [backlog for _, _, backlog in _backlogs(intake)]
    ids = {entry.trigger.id for backlog in backlogs for entry in backlog.here}
    for partition in intake.partitions.values():
        ids.update(partition.unwritten)
    # A grab that was won leaves the version after it behind; anything else is still to be run.
    undecided = (t for t in booked if intake.known.get(t.id) != t.version + 1)
    for triggers in (intake.table.triggers(), intake.unhandled.values(), undecided):
        ids.update(trigger.id for trigger in triggers if trigger.partition in intake.partitions)
    count = len(ids) + sum(backlog.beyond for backlog in backlogs)
    return count, all(backlog.at_end for backlog in backlogs)


def _backlogs(intake: Intake) -> Iterator[tuple[int, Column, Backlog]]:
    for number, partition in intake.partitions.items():
        for column, backlog in partition.columns.items():
            yield number, column, backlog
    yield from intake.stored.backlogs()


async def _count_stored(store: Store, intake: Intake) -> None:
    """Ask the store where nobody here can tell, as after a takeover."""
    unsure = [place for place in _backlogs(intake) if place[2].wants_count]
    if not unsure:
        return
    limit = max(1, COUNTED_MAX * len(intake.partitions) // len(unsure))
    cursors = [LevelCursor(number, column, b.read_level, limit) for number, column, b in unsure]
    counts = await store.count_levels(intake.queue, cursors)
    for (_, _, backlog), cursor, count in zip(unsure, cursors, counts, strict=True):
        backlog.counted(cursor.level, count)


async def _oldest_s(store: Store, intake: Intake, clock: Clock) -> float | None:
    """How long ago the task was enqueued that arrived first of those that may run.

    By the rows and not by what is in memory: the oldest may stand beyond the windows, where a key
    of little weight or one that is paused waits.
    """
    cursors = [Cursor(number, START) for number in intake.partitions]
    if not cursors:
        return None
    first = (await store.arrivals(intake.queue, cursors, limit=1, exact=False)).triggers
    if not first:
        return None
    id = min((trigger.arrived, trigger.id) for trigger in first)[1]
    task = (await store.get([id])).get(id)
    return None if task is None else max(0.0, (clock.now() - task.enqueued_at).total_seconds())
