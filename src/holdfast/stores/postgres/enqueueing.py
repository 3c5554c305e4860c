"""Adding tasks: the statements for a caller's transaction, and the faster ones for our own.

A key is claimed before its task is inserted, by an upsert that succeeds only where the key is
new or its period has passed.  Keys are claimed in sorted order, so that two batches never wait
for each other in a circle; ids are given beforehand when the two orders may differ, so that ids
always follow the order of the tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.errors import StoreUnavailable
from holdfast.sql.query import Script
from holdfast.stores.postgres.connection import Database, Session
from holdfast.stores.postgres.rows import alike
from holdfast.task import Enqueued, NewTask, State, clamped_priority

_STATES = list(State)  # by number: State(…) takes four times as long

CLAIMS_MAX = 5  # of one key that disappears each time before its holder can be read


def params_of(task: NewTask, id: int | None) -> dict[str, Any]:
    """One task as scalar parameters, which every driver binds in the same way."""
    params: dict[str, Any] = {
        "id": id,
        "queue": task.queue,
        "partition": task.partition,
        "kind": task.kind,
        "priority": clamped_priority(task.priority),
        "delay_s": task.delay_s,
        "due_at": task.due_at,
        "fairness_key": task.fairness_key,
        "weight": task.weight,
        "ordering_key": task.ordering_key,
        "metadata": task.metadata,
        "payload": task.payload,
    }
    if task.key is not None:
        params |= {"scope": task.key.scope, "name": task.key.name, "period_s": task.key.period_s}
    return params


def arrays_of(tasks: Sequence[NewTask], ids: Sequence[int] = ()) -> dict[str, Any]:
    """Many tasks as one array for each column, or as one value where all of them are alike."""
    priorities = [clamped_priority(task.priority) for task in tasks]
    return {
        "ids": ids,
        "partitions": [task.partition for task in tasks],
        "payloads": [task.payload for task in tasks],
        **alike("queue", "queues", [task.queue for task in tasks]),
        **alike("kind", "kinds", [task.kind for task in tasks]),
        **alike("priority", "priorities", priorities),
        **alike("delay_s", "delays_s", [task.delay_s for task in tasks]),
        **alike("due_at", "due_ats", [task.due_at for task in tasks]),
        **alike("fairness_key", "fairness_keys", [task.fairness_key for task in tasks]),
        **alike("weight", "weights", [task.weight for task in tasks]),
        **alike("ordering_key", "ordering_keys", [task.ordering_key for task in tasks]),
        **alike("metadata", "metadatas", [task.metadata for task in tasks]),
    }


def enqueueing(database: Database, tasks: Sequence[NewTask]) -> Script[list[Enqueued]]:
    """The statements that add the tasks in a transaction of the caller, whatever its driver."""
    firsts = _firsts(tasks)
    ids: list[int | None] = [None] * len(tasks)
    if firsts and len(tasks) > 1:
        rows = yield database.query("take_ids"), {"count": len(tasks)}
        ids = [row[0] for row in rows]
    answers: dict[int, Enqueued] = {}
    for key in sorted(firsts):
        place = firsts[key]
        answers[place] = yield from _enqueueing_keyed(database, tasks[place], ids[place])
    for place, task in enumerate(tasks):
        if task.key is None:
            rows = yield database.query("enqueue_one"), params_of(task, ids[place])
            answers[place] = created(rows[0])
    return _in_order(tasks, firsts, answers)


def _enqueueing_keyed(database: Database, task: NewTask, id: int | None) -> Script[Enqueued]:
    assert task.key is not None, "only a task with a key claims one"
    for _ in range(CLAIMS_MAX):
        rows = yield database.query("enqueue_keyed"), params_of(task, id)
        if rows:
            return created(rows[0])
        holder = {"scope": task.key.scope, "name": task.key.name}
        rows = yield database.query("key_holder"), holder
        if rows:
            return found(rows[0])
    raise _restless()


async def enqueue_many(session: Session, tasks: Sequence[NewTask]) -> list[Enqueued]:
    """Add tasks of which some have keys, in our own transaction, in a handful of statements."""
    firsts = _firsts(tasks)
    ids = [row[0] for row in await session.run("take_ids", {"count": len(tasks)})]
    taken, answers = await _keys_taken(session, tasks, ids)
    places = [n for n, task in enumerate(tasks) if task.key is None or ids[n] in taken]
    if places:
        arrays = arrays_of([tasks[n] for n in places], [ids[n] for n in places])
        rows = await session.run("enqueue_many", arrays)
        answers |= {place: created(row) for place, row in zip(places, rows, strict=True)}
    return _in_order(tasks, firsts, answers)


async def _keys_taken(
    session: Session, tasks: Sequence[NewTask], ids: Sequence[int]
) -> tuple[set[int], dict[int, Enqueued]]:
    """The ids whose keys are now theirs, and the answers for the keys of older tasks."""
    firsts = _firsts(tasks)
    taken: set[int] = set()
    answers: dict[int, Enqueued] = {}
    places = [firsts[key] for key in sorted(firsts)]
    for _ in range(CLAIMS_MAX):
        keys = [key for place in places if (key := tasks[place].key) is not None]
        names = {"scopes": [key.scope for key in keys], "names": [key.name for key in keys]}
        wanted = {"tasks": [ids[n] for n in places], "periods_s": [key.period_s for key in keys]}
        taken |= {row[0] for row in await session.run("take_keys", names | wanted)}
        places = [place for place in places if ids[place] not in taken]
        if not places:
            return taken, answers
        for scope, name, *rest in await session.run("key_holders", names):
            if (place := firsts[scope, name]) in places:
                answers[place] = found(rest)
        places = [place for place in places if place not in answers]
    if places:
        raise _restless()
    return taken, answers


def created(row: Sequence[Any]) -> Enqueued:
    return Enqueued(row[0], _STATES[row[1]], True, row[2])


def found(row: Sequence[Any]) -> Enqueued:
    return Enqueued(row[0], _STATES[row[1]], False, row[2])


def _restless() -> StoreUnavailable:
    return StoreUnavailable("a unique key was taken and freed again while we asked: try again")


def _firsts(tasks: Sequence[NewTask]) -> dict[tuple[str, str], int]:
    """Where each key stands first; later tasks with the same key are answered with that one."""
    firsts: dict[tuple[str, str], int] = {}
    for place, task in enumerate(tasks):
        if task.key is not None:
            firsts.setdefault((task.key.scope, task.key.name), place)
    return firsts


def _in_order(
    tasks: Sequence[NewTask], firsts: dict[tuple[str, str], int], answers: dict[int, Enqueued]
) -> list[Enqueued]:
    ordered = []
    for place, task in enumerate(tasks):
        first = place if task.key is None else firsts[task.key.scope, task.key.name]
        answer = answers[first]
        ordered.append(answer if first == place else answer._replace(created=False))
    return ordered
