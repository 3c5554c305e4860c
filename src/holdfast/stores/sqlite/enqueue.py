"""Enqueueing: the same statements for our own writer and for a transaction of the caller."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from holdfast.sql.query import Script, Style, rendered
from holdfast.stores.sqlite.rows import micros, moment_or_none, span
from holdfast.stores.sqlite.statements import query, run, run_many, run_one, run_script
from holdfast.task import Enqueued, Key, NewTask, State, TaskId, clamped_priority

_WAITING, _SUBMITTED = int(State.WAITING), int(State.SUBMITTED)
_NAMES = rendered(query("enqueue"), Style.NAMED)[1]
_STATE = _NAMES.index("state")  # stands once more at the end of `enqueue`
_FEW = 8  # from here on, giving the ids ourselves is faster than asking for each


def enqueueing(tasks: Sequence[NewTask], now: int) -> Script[list[Enqueued]]:
    """Statements for one transaction, whoever runs it; the tasks get their ids in order.

    The first statement writes, so that a transaction that has only read so far takes the
    write lock here, before anything depends on what it saw.
    """
    if tasks[0].key is not None:
        yield query("touch"), {}
    answers: list[Enqueued] = []
    for task in tasks:
        if task.key is not None:
            found = yield query("key_find"), _key(task.key) | {"now": now}
            if found:
                answers.append(_existing(found[0]))
                continue
        due_at = _due_at(task, now)
        rows = yield query("enqueue"), _params(task, due_at, now)
        answers.append(_created(rows[0][0], due_at))
        if task.key is not None:
            period_s = task.key.period_s
            until = None if period_s is None else now + span(period_s)
            yield query("key_put"), _key(task.key) | {"task": rows[0][0], "until": until}
    return answers


def enqueue(db: sqlite3.Connection, now: int, tasks: Sequence[NewTask]) -> list[Enqueued]:
    """The same in our own transaction; many tasks without keys go in as one statement."""
    if len(tasks) < _FEW or any(task.key is not None for task in tasks):
        return run_script(db, enqueueing(tasks, now))
    first = run(db, "last_arrived")[0][0] + 1
    dues = [_due_at(task, now) for task in tasks]
    numbered = zip(tasks, dues, strict=True)
    run_many(
        db,
        "enqueue_many",
        [
            (id, *_values(task, due_at, now), id if due_at is None else 0)
            for id, (task, due_at) in enumerate(numbered, first)
        ],
    )
    return [_created(id, due_at) for id, due_at in enumerate(dues, first)]


def enqueue_one(db: sqlite3.Connection, now: int, task: NewTask) -> Enqueued:
    """A task without a key: one statement, which needs no transaction around it."""
    due_at = _due_at(task, now)
    values = _values(task, due_at, now)
    return _created(run_one(db, "enqueue", (*values, values[_STATE])), due_at)


def _due_at(task: NewTask, now: int) -> int | None:
    """When the task may run, or None for at once."""
    if task.due_at is not None:
        due_at = micros(task.due_at)
    elif task.delay_s > 0:
        due_at = now + span(task.delay_s)
    else:
        return None
    return due_at if due_at > now else None


def _values(task: NewTask, due_at: int | None, now: int) -> tuple[Any, ...]:
    """In the order of the places in `enqueue` and `enqueue_many`, the numbers apart."""
    return (
        task.queue,
        task.partition,
        task.kind,
        _SUBMITTED if due_at is None else _WAITING,
        clamped_priority(task.priority),
        now,
        due_at,
        task.fairness_key,
        task.weight,
        task.ordering_key,
        task.metadata,
        task.payload,
    )


def _params(task: NewTask, due_at: int | None, now: int) -> dict[str, Any]:
    return dict(zip(_NAMES, _values(task, due_at, now), strict=True))


def _key(key: Key) -> dict[str, Any]:
    return {"scope": key.scope, "name": key.name}


def _created(id: int, due_at: int | None) -> Enqueued:
    state = State.SUBMITTED if due_at is None else State.WAITING
    return Enqueued(TaskId(id), state, True, moment_or_none(due_at))


def _existing(row: Sequence[Any]) -> Enqueued:
    id, number, due_at = row
    state = State(number)
    return Enqueued(
        TaskId(id), state, False, moment_or_none(due_at) if state is State.WAITING else None
    )
