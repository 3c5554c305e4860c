"""People's wishes and the duties' moves, as operations under the write lock."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from holdfast.ids import NodeId
from holdfast.store import Answer, Change, Changed, Due
from holdfast.stores.sqlite.rows import moment_or_none, span
from holdfast.stores.sqlite.statements import as_list, run, run_many
from holdfast.task import FINAL, MOVES, WISHES, Event, State, TaskId, Trigger

_FACTS = len(Trigger._fields)  # `triggers` adds state and losses after these

LOST_NOTE = "delivered {count} times without an outcome: it may be what ends its nodes"


def change(db: sqlite3.Connection, now: int, changes: Sequence[Change]) -> list[Changed]:
    return [_change_one(db, now, wish) for wish in changes]


def _change_one(db: sqlite3.Connection, now: int, wish: Change) -> Changed:
    rows = run(db, "triggers", ids=as_list([wish.id]))
    if not rows:
        return _not_hot(db, wish)
    trigger = Trigger._make(rows[0][:_FACTS])
    state = State(rows[0][_FACTS])
    if wish.version is not None and wish.version != trigger.version:
        return Changed(Answer.FAILED)
    if not _is_allowed(state, wish):
        return Changed(Answer.NOT_ALLOWED)
    target = MOVES[state, wish.event]
    ids = as_list([wish.id])
    moved = trigger._replace(version=trigger.version + 1)
    if target is State.SUBMITTED:
        arrived = run(db, "next_arrived")[0][0]
        run(db, "submit", arrived=arrived, keeps=0, loses=0, error=wish.error, ids=ids)
        return Changed(Answer.OK, moved._replace(arrived=arrived))
    if target is State.WAITING:
        due_at = now + span(wish.delay_s)
        run(db, "reschedule", due_at=due_at, error=wish.error, id=wish.id)
        return Changed(Answer.OK)
    assert target in FINAL, "a wish submits, delays or ends a task"
    run_many(db, "archive", [(int(target), now, None, wish.error, None, wish.id)])
    run(db, "remove", ids=ids)
    return Changed(Answer.OK, moved if state is State.PROCESSING else None)


def _not_hot(db: sqlite3.Connection, wish: Change) -> Changed:
    archived = run(db, "settle_look_archive", ids=as_list([wish.id]))
    if not archived:
        return Changed(Answer.NOT_FOUND)
    if wish.version is not None and wish.version != archived[0][1]:
        return Changed(Answer.FAILED)
    return Changed(Answer.NOT_ALLOWED)


def _is_allowed(state: State, wish: Change) -> bool:
    if wish.event not in WISHES or (state, wish.event) not in MOVES:
        return False
    return wish.force or (state, wish.event) != (State.PROCESSING, Event.RESUMED)


def next_due(db: sqlite3.Connection) -> int | None:
    rows = run(db, "next_due")
    return rows[0][0] if rows else None


def submit_due(db: sqlite3.Connection, now: int, limit: int) -> Due:
    ids = [id for (id,) in run(db, "due", now=now, limit=limit)]
    triggers = _submitted(db, ids, keeps=1, loses=0)
    return Due(triggers, moment_or_none(next_due(db)))


def submit_overdue(
    db: sqlite3.Connection, now: int, *, deadline_s: float, limit: int
) -> list[Trigger]:
    rows = run(db, "submit_overdue", now=now, span=span(deadline_s), limit=limit)
    late = as_list([id for id, _ in rows])
    run(db, "postpone", deadline_at=now + span(deadline_s), ids=late)
    ids = as_list([id for id, is_first_look in rows if not is_first_look])
    return [Trigger._make(row[:_FACTS]) for row in run(db, "triggers", ids=ids)]


def resume_overdue(
    db: sqlite3.Connection, tasks: Mapping[TaskId, int], *, deliveries_max: int
) -> list[Trigger]:
    return _resumed(db, _processing(db, tasks), deliveries_max)


def postpone(
    db: sqlite3.Connection, now: int, tasks: Mapping[TaskId, int], *, deadline_s: float
) -> None:
    ids = as_list(_processing(db, tasks))
    run(db, "postpone", deadline_at=now + span(deadline_s), ids=ids)


def _processing(db: sqlite3.Connection, tasks: Mapping[TaskId, int]) -> list[int]:
    """Those that run at the versions named."""
    rows = run(db, "settle_look", ids=as_list(tasks))
    return [id for id, *rest, _ in rows if rest == [tasks[id], State.PROCESSING]]


def resume_lost(
    db: sqlite3.Connection,
    now: int,
    nodes: Collection[NodeId],
    *,
    deliveries_max: int,
    limit: int,
) -> list[Trigger]:
    # What they hold of limits is given back only when none of their tasks is PROCESSING.
    run(db, "shares_end", nodes=as_list(nodes))
    ids = [id for (id,) in run(db, "lost", nodes=as_list(nodes), limit=limit)]
    triggers = _resumed(db, ids, deliveries_max)
    run(db, "shares_give_back", nodes=as_list(nodes))
    return triggers


def _resumed(db: sqlite3.Connection, ids: Sequence[int], deliveries_max: int) -> list[Trigger]:
    """Count a loss of each and submit it again, or park it when there were too many."""
    losses = {row[0]: row[_FACTS + 1] + 1 for row in run(db, "triggers", ids=as_list(ids))}
    poisonous = [id for id in ids if losses[id] >= deliveries_max]
    for id in poisonous:
        run(db, "park", error=LOST_NOTE.format(count=losses[id]), ids=as_list([id]))
    return _submitted(db, [id for id in ids if id not in set(poisonous)], keeps=1, loses=1)


def park(db: sqlite3.Connection, now: int, tasks: Mapping[TaskId, int], error: str) -> list[TaskId]:
    rows = run(db, "settle_look", ids=as_list(tasks))
    may_park = (State.SUBMITTED, State.PROCESSING)
    moved = [
        TaskId(id) for id, version, state, _ in rows if version == tasks[id] and state in may_park
    ]
    run(db, "park", error=error, ids=as_list(moved))
    return moved


def clean(db: sqlite3.Connection, now: int, *, keep_days: float, limit: int) -> int:
    before = now - span(keep_days * 86_400)
    ids: list[Any] = [id for (id,) in run(db, "old", before=before, limit=limit)]
    if ids:
        run(db, "key_drop", ids=as_list(ids))
        run(db, "drop_archived", ids=as_list(ids))
    run(db, "key_drop_ended", now=now, limit=limit)
    run(db, "schedules_clean", before=before, limit=limit)
    return len(ids)


def _submitted(db: sqlite3.Connection, ids: list[int], *, keeps: int, loses: int) -> list[Trigger]:
    """Submit the tasks and answer their triggers, in the order given."""
    if not ids:
        return []
    arrived = run(db, "next_arrived")[0][0]
    run(db, "submit", arrived=arrived, keeps=keeps, loses=loses, error=None, ids=as_list(ids))
    rows = run(db, "triggers", ids=as_list(ids))
    found = {row[0]: Trigger._make(row[:_FACTS]) for row in rows}
    return [found[id] for id in ids]
