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
    """`waited_s` counts from the enqueue; None where a delay or an earlier grab lies in between."""

    task: int
    version: int
    kind: str
    node: str
    queue: str
    waited_s: float | None


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
    queue: str


@dataclass(frozen=True, slots=True)
class SettleRefused:
    """The attempt was superseded: somebody else has moved the task on."""

    task: int
    version: int
    kind: str


@dataclass(frozen=True, slots=True)
class AttemptTakenBack:
    """An attempt was stopped, because somebody else has moved its task on."""

    task: int
    version: int
    kind: str


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
class TaskStuck:
    """A task is past its deadline; what was done about it."""

    task: int
    kind: str
    state: str
    done: str


@dataclass(frozen=True, slots=True)
class DutyTaken:
    """This node keeps the duty from now on."""

    node: str
    duty: str


@dataclass(frozen=True, slots=True)
class DutyLost:
    """Another node keeps the duty now, or nobody."""

    node: str
    duty: str


@dataclass(frozen=True, slots=True)
class SuspectStarted:
    """A task that was running when its node died runs alone, in a process of its own."""

    task: int
    kind: str
    losses: int


@dataclass(frozen=True, slots=True)
class AloneRefused:
    """Suspects of this kind can only be run in the node, as everybody else; said once."""

    kind: str
    reason: str


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
class SlotsCounted:
    """For each mode of handlers: how many slots of the node are booked, and how many are free."""

    node: str
    slots: tuple[tuple[str, int, int], ...]  # mode, booked, free


@dataclass(frozen=True, slots=True)
class LagMeasured:
    """How late the loop was."""

    seconds: float


@dataclass(frozen=True, slots=True)
class LeaseRenewed:
    """How much of the lease was left when it was renewed."""

    margin_s: float


@dataclass(frozen=True, slots=True)
class LeaseEnded:
    """A node's lease ended; its tasks are resumed."""

    node: str


@dataclass(frozen=True, slots=True)
class QueueSurvey:
    """What the watcher saw of one queue: a value inside `Surveyed`, no event."""

    queue: str
    waiting: int
    submitted: int
    processing: int
    error: int
    oldest_age_s: float
    stuck: int


@dataclass(frozen=True, slots=True)
class Surveyed:
    """The watcher looked at all queues; counts stop at a maximum."""

    node: str
    queues: tuple[QueueSurvey, ...]
    dead_rows: tuple[tuple[str, int], ...]
    oldest_snapshot_s: float | None
    oldest_snapshot_pid: int | None


@dataclass(frozen=True, slots=True)
class IncidentRaised:
    """Something a person should look at: raised once for the cluster."""

    kind: str
    what: str
    count: int


@dataclass(frozen=True, slots=True)
class BugFound:
    """Something that cannot happen happened; the rest goes on.  Please report it."""

    what: str


@dataclass(frozen=True, slots=True)
class StoreFailed:
    """A call to the store failed; it will be repeated."""

    verb: str
    error: str


@dataclass(frozen=True, slots=True)
class LeaseDoubtful:
    """This node could not renew its lease in time: it takes no new work until it can."""

    node: str


@dataclass(frozen=True, slots=True)
class LeaseLost:
    """This node's lease has ended and was forgotten: others have its work."""

    node: str


@dataclass(frozen=True, slots=True)
class LeaseRegained:
    """This node has a lease again, and goes on."""

    node: str
    after_s: float


@dataclass(frozen=True, slots=True)
class RenewerLost:
    """The process that renews this node's lease is gone; another is started."""

    node: str
    reason: str
    rest_s: float


@dataclass(frozen=True, slots=True)
class LoopBlocked:
    """Nothing else could run in this process: a handler held its loop or its interpreter.

    Without kinds nobody was seen at it: the process was stopped, or had no processor.
    """

    seconds: float
    kinds: tuple[str, ...]
    others: int


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
