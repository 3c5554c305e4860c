"""What a store tells people about a task that does not run, and about what needs their help.

The answers are of one moment and bounded: no count goes above `COUNTED_MAX`, however much waits.
Nothing is written, and no node takes notice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple, Protocol

from holdfast.ids import NodeId
from holdfast.task import State, Task, TaskId

COUNTED_MAX = 10_000
LOOKED_AT_MAX = 100_000  # entries of a backlog among which one is looked for
SAMPLE = 100  # tasks of one partition whose kinds are looked at


class Busy(NamedTuple):
    """A PROCESSING task, as a limit counts it."""

    id: TaskId
    kind: str
    fairness_key: str | None
    node: NodeId | None


class Elder(NamedTuple):
    """The task of the same ordering key that goes first: one that runs, or the oldest before it."""

    id: TaskId
    state: State


class Tokens(NamedTuple):
    """What was left of a rate, so many seconds ago."""

    tokens: float
    since_s: float


class OpenTransaction(NamedTuple):
    """Somebody's transaction that is not over."""

    name: str  # who holds it, such as "pid 4711"
    user: str
    since_s: float
    query: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Where a trigger stands in the stored backlog, and how many that may run stand before it.

    Counted over the partitions of its owner, which serves them as one line.
    """

    lane: str | None = None  # "" is the line of everybody, else that of its key; None: not in it
    before: int = 0
    before_of_key: int = 0  # of the same fairness key
    sooner: int = 0  # of higher priorities


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Everything that a store knows of why a task does not run, or of what became of it."""

    task: Task
    now: datetime  # by the store's clock
    weight: float = 1.0
    is_known: bool = False  # whether a node has ever served its queue
    owner: NodeId | None = None  # of its partition
    is_read: bool = False  # the owner's exact read has passed it: it stands in the backlog
    line: Line = field(default_factory=Line)
    elder: Elder | None = None
    running: Sequence[Busy] = ()  # what is PROCESSING in its queue
    tokens: Mapping[tuple[str, str], Tokens] = field(default_factory=dict)  # by limit and key
    held_up_by: Sequence[OpenTransaction] = ()  # its arrival is not final before these end


class Troubles(NamedTuple):
    """How many tasks need a person."""

    errors: int
    stuck: int  # PROCESSING past their deadline


class Health(NamedTuple):
    """What slows a store down over time, where it has such things."""

    dead_rows: Mapping[str, int]  # by table
    oldest_snapshot_s: float | None = None  # for so long vacuum could not clean up behind anybody
    oldest_snapshot_pid: int | None = None


class Insight(Protocol):
    async def health(self) -> Health:
        """Dead rows and the oldest snapshot; empty for a store that knows neither."""
        ...

    async def standing(self, id: TaskId) -> Standing | None:
        """What is known of one task, hot or archived; None: no such task."""
        ...

    async def waiting_kinds(self) -> list[tuple[str, str]]:
        """Queues and kinds of SUBMITTED tasks: of the oldest `SAMPLE` of each partition."""
        ...

    async def troubles(self) -> Troubles:
        """Tasks in ERROR, and tasks that are stuck."""
        ...
