"""The task: what it is, the states it may be in, and the moves between them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum, IntEnum, auto
from typing import NamedTuple, NewType

TaskId = NewType("TaskId", int)

PRIORITY_FIRST, PRIORITY_LAST, PRIORITY_DEFAULT = 0, 9, 5


class State(IntEnum):
    """The numbers are stored: they never change their meaning."""

    WAITING = 0  # not before `due_at`
    SUBMITTED = 1  # may run
    PROCESSING = 2  # grabbed by one node
    DONE = 3
    ERROR = 4  # parked until a person resumes it or gives it up
    FAILED = 5  # given up on purpose
    CANCELLED = 6


FINAL = frozenset({State.DONE, State.FAILED, State.CANCELLED})
HOT = frozenset(set(State) - FINAL)


class Event(Enum):
    DUE = auto()
    GRABBED = auto()
    SUCCEEDED = auto()
    RETRIED = auto()  # again, but not before a time
    REPEATED = auto()  # again, at once
    PARKED = auto()  # retries used up, no handler, unreadable: a person looks
    GIVEN_UP = auto()
    LEASE_LOST = auto()
    RESUMED = auto()
    RESCHEDULED = auto()
    CANCELLED = auto()


MOVES: dict[tuple[State, Event], State] = {
    (State.WAITING, Event.DUE): State.SUBMITTED,
    (State.WAITING, Event.RESUMED): State.SUBMITTED,
    (State.WAITING, Event.RESCHEDULED): State.WAITING,
    (State.WAITING, Event.CANCELLED): State.CANCELLED,
    (State.WAITING, Event.GIVEN_UP): State.FAILED,
    (State.SUBMITTED, Event.GRABBED): State.PROCESSING,
    (State.SUBMITTED, Event.PARKED): State.ERROR,
    (State.SUBMITTED, Event.RESCHEDULED): State.WAITING,
    (State.SUBMITTED, Event.CANCELLED): State.CANCELLED,
    (State.SUBMITTED, Event.GIVEN_UP): State.FAILED,
    (State.PROCESSING, Event.SUCCEEDED): State.DONE,
    (State.PROCESSING, Event.RETRIED): State.WAITING,
    (State.PROCESSING, Event.REPEATED): State.SUBMITTED,
    (State.PROCESSING, Event.PARKED): State.ERROR,
    (State.PROCESSING, Event.GIVEN_UP): State.FAILED,
    (State.PROCESSING, Event.CANCELLED): State.CANCELLED,
    (State.PROCESSING, Event.LEASE_LOST): State.SUBMITTED,
    (State.PROCESSING, Event.RESUMED): State.SUBMITTED,  # only with force
    (State.ERROR, Event.RESUMED): State.SUBMITTED,
    (State.ERROR, Event.RESCHEDULED): State.WAITING,
    (State.ERROR, Event.CANCELLED): State.CANCELLED,
    (State.ERROR, Event.GIVEN_UP): State.FAILED,
}


WISHES = frozenset({Event.RESUMED, Event.RESCHEDULED, Event.CANCELLED, Event.GIVEN_UP})
"""What a person may wish for; all other moves are made by the engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTask:
    """A task that is about to be enqueued.  The store gives id, version 1 and state."""

    queue: str
    partition: int
    kind: str
    payload: bytes  # an envelope, see holdfast.payload
    priority: int = PRIORITY_DEFAULT
    delay_s: float = 0.0  # counted by the store's clock; ignored when due_at is set
    due_at: datetime | None = None
    fairness_key: str | None = None
    weight: float = 1.0
    ordering_key: str | None = None
    metadata: bytes | None = None  # JSON: the caller's metadata and the trace context
    key: Key | None = None


@dataclass(frozen=True, slots=True)
class Key:
    """What makes a task unique: `name` within `scope`.

    For `period_s` from the enqueue, or as long as the task is kept.
    """

    scope: str
    name: str
    period_s: float | None = None


class Enqueued(NamedTuple):
    """The store's answer for one new task."""

    id: TaskId
    state: State
    created: bool  # False: the key belongs to this older task, nothing was added
    due_at: datetime | None  # set when WAITING


class Trigger(NamedTuple):
    """A hint that a task may run at this version; never the payload.

    It may be lost, doubled, late or reordered; the grab decides.
    """

    id: TaskId
    version: int
    queue: str
    partition: int
    kind: str
    priority: int
    fairness_key: str | None = None
    weight: float = 1.0
    ordering_key: str | None = None
    due_at: datetime | None = None  # set on a WAITING task: the waker's hint, not the dispatcher's
    arrived: int = 0  # the store's arrival number; 0 when the trigger came over a bus


class Grabbed(NamedTuple):
    """A task that this node may run now, at this version only."""

    id: TaskId
    version: int
    kind: str
    payload: bytes
    attempt: int  # of this run, from 1: failures recorded before, plus one
    deliveries: int  # grabs so far, this one included
    priority: int
    queue: str
    partition: int
    fairness_key: str | None
    weight: float  # of its fairness key, as it was enqueued
    ordering_key: str | None
    metadata: bytes | None
    enqueued_at: datetime
    losses: int = 0  # grabs since the last outcome whose process died: above 0 it is a suspect


class Outcome(NamedTuple):
    """What became of one attempt, to be recorded at the version of its grab."""

    id: TaskId
    version: int
    event: Event  # SUCCEEDED, RETRIED, REPEATED, PARKED, GIVEN_UP, CANCELLED
    delay_s: float = 0.0  # RETRIED: not before now + delay, by the store's clock
    error: str | None = None
    result: bytes | None = None
    counts: bool = True  # whether a retry counts as a used attempt
    resets: bool = False  # whether a retry starts counting attempts anew
    keep: bool = True  # False: SUCCEEDED leaves no row in the archive
    forgives: bool = True  # False: the handler did not end, so its losses go on being counted
    ends: str | None = None  # the schedule that ends with this outcome, if it is recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A task as the store holds it now, hot or archived."""

    id: TaskId
    queue: str
    partition: int
    kind: str
    state: State
    version: int
    priority: int
    payload: bytes
    attempts: int = 0  # failures recorded
    deliveries: int = 0  # grabs
    enqueued_at: datetime
    due_at: datetime | None = None
    deadline_at: datetime | None = None
    finished_at: datetime | None = None
    node: str | None = None
    fairness_key: str | None = None
    ordering_key: str | None = None
    metadata: bytes | None = None
    error: str | None = None
    result: bytes | None = field(default=None, repr=False)

    def moved(self, event: Event) -> Task:
        """The task after `event`, one version later."""
        return replace(self, state=MOVES[self.state, event], version=self.version + 1)


def trigger_of(task: NewTask, enqueued: Enqueued) -> Trigger:
    """The hint that goes out once the task is committed."""
    return Trigger(
        enqueued.id,
        1,
        task.queue,
        task.partition,
        task.kind,
        task.priority,
        task.fairness_key,
        task.weight,
        task.ordering_key,
        enqueued.due_at,
    )


def clamped_priority(priority: int) -> int:
    return min(max(priority, PRIORITY_FIRST), PRIORITY_LAST)


def lane_of(task: Trigger | Task) -> str:
    """Whose lane this is: of the ordering key, else of the fairness key, else of all without."""
    if task.ordering_key is not None:
        return f"o{task.ordering_key}"
    return "n" if task.fairness_key is None else f"f{task.fairness_key}"
