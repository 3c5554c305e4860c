"""What happened, as values.  Names are past tense; each is emitted after the fact is durable."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

Listener = Callable[[object], None]

_log = logging.getLogger("holdfast")


@dataclass(frozen=True, slots=True)
class TaskEnqueued:
    task: int
    queue: str
    kind: str


@dataclass(frozen=True, slots=True)
class TriggersPublished:
    count: int


@dataclass(frozen=True, slots=True)
class TriggersDropped:
    """More triggers waited to be sent than the bus holds; arrivals will find the tasks."""

    count: int


@dataclass(frozen=True, slots=True)
class TriggerRefused:
    """A trigger could not be read, and was skipped."""

    reason: str


@dataclass(frozen=True, slots=True)
class TriggersTurnedAway:
    """Their owner has no room for so many; their tasks stay SUBMITTED and are read later."""

    queue: str
    count: int
    reason: str


@dataclass(frozen=True, slots=True)
class TaskGrabbed:
    task: int
    version: int
    kind: str
    node: str


@dataclass(frozen=True, slots=True)
class GrabLost:
    task: int
    version: int


@dataclass(frozen=True, slots=True)
class TaskSettled:
    task: int
    version: int
    kind: str
    event: str
    ran_s: float


@dataclass(frozen=True, slots=True)
class SettleRefused:
    """The attempt was superseded: somebody else has moved the task on."""

    task: int
    version: int


@dataclass(frozen=True, slots=True)
class AttemptFailed:
    """A handler raised.  This is the user's domain, so it is a warning, not an error of ours."""

    task: int
    kind: str
    attempt: int
    error: str


@dataclass(frozen=True, slots=True)
class TaskResumed:
    """A task whose node is gone was submitted again."""

    task: int
    version: int


@dataclass(frozen=True, slots=True)
class ScheduleFired:
    """A slot of a schedule has come, and its task was added."""

    schedule: str
    slot: datetime
    task: int


@dataclass(frozen=True, slots=True)
class SlotsMissed:
    """Slots passed while nobody looked, and do not fire any more.  Counted up to 1,000."""

    schedule: str
    count: int


@dataclass(frozen=True, slots=True)
class ScheduleChanged:
    """A schedule was put, paused, resumed or dropped by this process."""

    schedule: str


@dataclass(frozen=True, slots=True)
class PartitionTaken:
    queue: str
    partition: int
    epoch: int


@dataclass(frozen=True, slots=True)
class PartitionLost:
    queue: str
    partition: int
    epoch: int


@dataclass(frozen=True, slots=True)
class BugFound:
    """Something that cannot happen happened and was repaired.  Please report it."""

    what: str


@dataclass(frozen=True, slots=True)
class StoreFailed:
    """A call to the store failed; it will be repeated."""

    verb: str
    error: str


@dataclass(frozen=True, slots=True)
class NodeStarted:
    node: str
    queues: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NodeStopped:
    node: str


class Events:
    """Hands each event to every listener; `wanted` lets hot paths skip one for nobody."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []
        self._curious = 0  # listeners that want an event for every task

    @property
    def wanted(self) -> bool:
        """Whether anybody wants the events that come with every single task."""
        return self._curious > 0

    def listen(self, listener: Listener, *, every_task: bool = True) -> Callable[[], None]:
        """Add a listener; call the answer to remove it again.

        With `every_task=False` it hears what goes wrong and what is rare; what happens to every
        task it hears only while somebody else wants that.
        """
        self._listeners.append(listener)
        self._curious += every_task

        def stop() -> None:
            self._listeners.remove(listener)
            self._curious -= every_task

        return stop

    def emit(self, event: object) -> None:
        for listener in list(self._listeners):
            try:
                listener(event)
            except Exception:
                # Whoever listens must never stop the work that it listens to.
                _log.exception("a listener of events failed on %r", type(event).__name__)
