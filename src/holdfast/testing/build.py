"""Builders: a test names what it is about, and takes the rest as given."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from holdfast.store import Entry, Level
from holdfast.task import Grabbed, NewTask, State, Task, TaskId, Trigger

START = datetime(2030, 1, 1, tzinfo=UTC)


def a_trigger(id: int = 1, kind: str = "mail", **fields: Any) -> Trigger:
    given: dict[str, Any] = {"version": 1, "queue": "default", "partition": 0, "priority": 5}
    return Trigger(id=TaskId(id), kind=kind, **(given | fields))


def an_entry(pass_: int, seq: int, **fields: Any) -> Entry:
    """A trigger at level (pass, seq); its id is its seq unless the test names one."""
    return Entry(Level(pass_, seq), a_trigger(**({"id": seq} | fields)))


def a_new_task(kind: str = "mail", **fields: Any) -> NewTask:
    given: dict[str, Any] = {"queue": "default", "partition": 0, "payload": b"{}"}
    return NewTask(kind=kind, **(given | fields))


def a_task(id: int = 1, kind: str = "mail", **fields: Any) -> Task:
    given: dict[str, Any] = {
        "queue": "default",
        "partition": 0,
        "state": State.SUBMITTED,
        "version": 1,
        "priority": 5,
        "payload": b"{}",
        "enqueued_at": START,
    }
    return Task(id=TaskId(id), kind=kind, **(given | fields))


def a_grabbed(id: int = 1, kind: str = "mail", **fields: Any) -> Grabbed:
    given: dict[str, Any] = {
        "version": 2,
        "payload": b"{}",
        "attempt": 1,
        "deliveries": 1,
        "priority": 5,
        "queue": "default",
        "partition": 0,
        "fairness_key": None,
        "weight": 1.0,
        "ordering_key": None,
        "metadata": None,
        "enqueued_at": START,
    }
    return Grabbed(id=TaskId(id), kind=kind, **(given | fields))
