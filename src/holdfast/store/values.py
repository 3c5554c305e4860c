"""What the verbs of a store take and answer: plain values, frozen."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any, NamedTuple

from holdfast.ids import NodeId
from holdfast.ring import DutyRecord
from holdfast.task import Event, Grabbed, State, TaskId, Trigger

NO_FACTS: Mapping[str, Any] = {}
NO_WEIGHTS: Mapping[str, float | None] = {}


class Level(NamedTuple):
    """A place in a backlog's line: by pass first, by the owner's counter second."""

    pass_: int  # `pass` is a keyword of Python
    seq: int


ZERO = Level(0, 0)


class Position(NamedTuple):
    """A place in the line of arrivals of one partition."""

    arrived: int
    id: int


START = Position(0, 0)


class Column(NamedTuple):
    """One line of triggers within a partition.

    A key that may not go on waits in a lane of its own; "" is the line of everybody else.
    """

    priority: int
    kind: str
    lane: str = ""


class Mark(NamedTuple):
    """What the owner persists of a column: its ack level and the highest pass dispatched."""

    ack_level: Level
    top_pass: int = 0


class Entry(NamedTuple):
    """A trigger at its place in a backlog."""

    level: Level
    trigger: Trigger
    lane: str = ""


Counters = Mapping[str | None, int]
"""The last pass of each of the busiest fairness keys of a column."""


class Tail(NamedTuple):
    """The last entry of a column: its level, and whose it is."""

    level: Level
    fairness_key: str | None = None


class Running(NamedTuple):
    """A PROCESSING row, as a takeover finds it."""

    id: TaskId
    version: int
    kind: str
    node: NodeId
    partition: int
    ordering_key: str | None
    fairness_key: str | None


@dataclass(frozen=True, slots=True)
class Grab:
    """The answer to a grab.

    What is in none of the first three lists was decided against us: gone, moved on, or someone
    else's.  `undecided` rows were locked by somebody and still stand at the expected version:
    offer them again.  `blocked` rows wait for an elder of their ordering key, or for a sibling
    that runs; `elders` are the eldest of those keys that are SUBMITTED and were not asked for.
    """

    tasks: list[Grabbed]
    undecided: list[TaskId] = field(default_factory=list)
    blocked: list[TaskId] = field(default_factory=list)
    elders: list[Trigger] = field(default_factory=list)

    def __add__(self, other: Grab) -> Grab:
        return Grab(
            self.tasks + other.tasks,
            self.undecided + other.undecided,
            self.blocked + other.blocked,
            self.elders + other.elders,
        )


class Cursor(NamedTuple):
    """Where to read on: arrivals of one partition above `position`, and numbered below `until`."""

    partition: int
    position: Position
    until: int | None = None


@dataclass(frozen=True, slots=True)
class Arrivals:
    """One page for each partition, in order of (arrived, id), and the horizon of this snapshot.

    Every row that will ever commit below `horizon` is visible now.  `open` are the numbers above
    it whose rows may still appear, below rows that are visible already.
    """

    triggers: list[Trigger]
    horizon: int
    open: frozenset[int] = frozenset()


class LevelCursor(NamedTuple):
    """Where to read on: entries of one column above `level`, at most `limit`."""

    partition: int
    column: Column
    level: Level
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What the owner of one partition writes in one go, fenced by its epoch."""

    partition: int
    epoch: int
    entries: Sequence[Entry] = ()  # appended to the backlog
    position: Position | None = None  # the new P, when it moves
    marks: Mapping[Column, Mark] = field(default_factory=dict)  # ack levels to persist
    trims: Mapping[Column, tuple[Level, Level]] = field(default_factory=dict)  # delete (from, to]
    counters: Mapping[Column, Counters] = field(default_factory=dict)  # replace what was there


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a takeover finds of one partition."""

    partition: int
    position: Position
    marks: dict[Column, Mark]
    columns: dict[Column, Tail]  # columns with entries above their ack level
    running: list[Running]
    counters: dict[Column, dict[str | None, int]] = field(default_factory=dict)


class Holding(NamedTuple):
    """Who owns a partition, under which epoch, and who would like to."""

    partition: int
    owner: NodeId | None
    epoch: int
    wish: NodeId | None


class Member(NamedTuple):
    """A node's lease, as the store sees it."""

    node: NodeId
    queues: tuple[str, ...]
    kinds: tuple[str, ...]
    is_alive: bool
    number: int | None = None  # the index of its registration; None: a node of older code
    left_s: float = 0.0  # of its lease, by the store's clock; negative: ended so long ago
    started_at: datetime | None = None
    facts: Mapping[str, Any] = NO_FACTS  # what it tells of itself
    asked: str | None = None  # what a person wants it to do, such as "drain"


class Look(NamedTuple):
    """What a tick needs to know, as of one moment."""

    members: list[Member]
    holdings: dict[str, list[Holding]]  # by queue
    duties: list[DutyRecord]
    rules_version: int


class Answer(Enum):
    """What became of a manual change."""

    OK = "OK"
    NOT_FOUND = "NOT_FOUND"
    NOT_ALLOWED = "NOT_ALLOWED"  # the state does not permit it
    FAILED = "FAILED"  # the task has moved on from the version named


class Change(NamedTuple):
    """A person's wish: move the task by `event`, at `version` (None: whatever it is now)."""

    id: TaskId
    event: Event  # RESUMED, RESCHEDULED, CANCELLED, GIVEN_UP
    version: int | None = None
    delay_s: float = 0.0  # RESCHEDULED: not before now + delay
    force: bool = False  # RESUMED: also a PROCESSING task
    error: str | None = None  # a reason to keep with the task


class Changed(NamedTuple):
    answer: Answer
    trigger: Trigger | None = (
        None  # set when the task became SUBMITTED, or was taken from a running attempt
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which tasks to list.  Several values of one field mean "any of them"."""

    states: Collection[State] = ()
    queues: Collection[str] = ()
    kinds: Collection[str] = ()
    fairness_keys: Collection[str] = ()
    after: TaskId | None = None  # a page: ids above this one
    limit: int = 100


class Overdue(NamedTuple):
    """A PROCESSING task past its deadline."""

    id: TaskId
    version: int
    queue: str
    kind: str
    node: NodeId
    late_s: float


class Due(NamedTuple):
    """What the waker submitted, and when it should look again at the latest."""

    triggers: list[Trigger]
    next_due_at: datetime | None
