"""The task that the running code belongs to."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from holdfast.schedule import SLOT, ScheduleSlot, slot_of
from holdfast.task import Grabbed, TaskId
from holdfast.telemetry.carrier import without_trace


@dataclass(frozen=True, slots=True)
class CurrentTask:
    """What a handler may know of its own attempt.

    `version` fences outside resources: a later attempt of the same task has a higher one.
    """

    id: TaskId
    version: int
    kind: str
    queue: str
    attempt: int  # from 1: recorded failures before this run, plus one
    deliveries: int  # grabs so far, also those whose process died
    priority: int
    key: str | None  # the ordering key
    fairness_key: str | None
    enqueued_at: datetime
    metadata: dict[str, Any]  # the caller's own, with the traceparent that it gave, if any
    schedule: ScheduleSlot | None = None  # which schedule fired the task, and for when


_current: ContextVar[Grabbed] = ContextVar("holdfast_current_task")


def current_task() -> CurrentTask:
    """The attempt that this code runs in; LookupError outside of a handler."""
    task = _current.get()
    body = without_trace(task.metadata)
    metadata = msgspec.json.decode(body) if body else {}
    metadata.pop(SLOT, None)
    return CurrentTask(
        task.id,
        task.version,
        task.kind,
        task.queue,
        task.attempt,
        task.deliveries,
        task.priority,
        task.ordering_key,
        task.fairness_key,
        task.enqueued_at,
        metadata,
        slot_of(task.metadata),
    )


def enter(task: Grabbed) -> None:
    """Make the task current for the rest of this context."""
    _current.set(task)
