"""A schedule: what fires when, and which of its slots are due.  Pure.

Each schedule has one row in the store, under its name.  Whoever finds it due plans what to fire and
writes the plan at the version that was read: tasks, the next slot and the version change together
or not at all.  So of any number of nodes one fires a slot, whatever they believe of each other;
and because the next slot only moves on, no clock that steps back fires one twice.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

from holdfast.errors import ConfigurationError
from holdfast.policy import Spread
from holdfast.task import PRIORITY_DEFAULT, Enqueued, Key, NewTask
from holdfast.timing import (
    At,
    CatchUp,
    Cron,
    Every,
    Timing,
    latest_slots,
    slots_between,
    text_of,
    timing_of,
)

Source = Literal["code", "run time"]

NAME_CHARS_MAX = 200
CATCH_UP_MAX = 1_000  # slots that one fire makes up for; earlier ones stay missed
LATE_S = 30.0  # with catch_up="none": a slot that is found this late still fires
SCOPE = "schedule"  # of the keys that keep a slot from firing twice
SLOT = "holdfast.schedule"  # in the metadata of a task that was fired

_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """What fires when, as the store holds it now."""

    name: str  # its fixed id: one row in the store
    timing: Timing
    kind: str
    queue: str
    payload: bytes = field(repr=False)  # an envelope, see holdfast.payload
    priority: int = PRIORITY_DEFAULT
    fairness_key: str | None = None
    weight: float = 1.0
    ordering_key: str | None = None
    metadata: bytes | None = None
    partition: int | None = None  # None: each task gets one by its ordering key, or in turn
    source: Source = "run time"
    is_paused: bool = False
    next_at: datetime | None = None  # the next slot that will fire; None: it has ended
    last_at: datetime | None = None  # the latest slot that fired
    missed: int = 0  # slots that passed and never fired
    version: int = 0  # raised by every change and every fire; 0: not in the store

    def __post_init__(self) -> None:
        if not 1 <= len(self.name) <= NAME_CHARS_MAX or not self.name.isprintable():
            raise ConfigurationError(
                f"a schedule's name has 1 to {NAME_CHARS_MAX} printable characters: "
                f"{self.name[:NAME_CHARS_MAX]!r}"
            )

        if not isinstance(self.timing, Cron | Every | At | Unreadable):
            raise ConfigurationError(
                f"schedule {self.name!r}: say when by Cron(…), Every(…) or At(…), "
                f"not by {self.timing!r}"
            )

    @property
    def is_ended(self) -> bool:
        """Whether it will never fire again by itself."""
        return self.next_at is None

    def fires_like(self, other: Schedule) -> bool:
        """Whether both fire the same tasks at the same times."""
        return _essence(self) == _essence(other)


class Listed(NamedTuple):
    """Schedules as the store answers them, with its own time."""

    now: datetime
    schedules: list[Schedule]
    next_at: datetime | None = None  # of the first that is not due yet


class Fire(NamedTuple):
    """What one fire writes in one go, if the schedule still stands at this version and is due."""

    name: str
    version: int
    tasks: Sequence[NewTask]
    next_at: datetime | None
    last_at: datetime | None  # None: as it was
    missed: int = 0  # more than before


class Plan(NamedTuple):
    """What is due: the slots to fire, how many are passed over, and the next one."""

    slots: list[datetime]
    missed: int  # counted up to CATCH_UP_MAX
    next_at: datetime | None


@dataclass(frozen=True, slots=True)
class ScheduleSlot:
    """Which schedule fired a task, and for when."""

    name: str
    slot: datetime | None  # None: a person wished it to run now
    next_at: datetime | None  # the next regular run, as it was known then


class Unreadable(NamedTuple):
    """A timing that a newer Holdfast wrote: it is kept and shown, and fired by others."""

    text: str
    catch_up: CatchUp = "none"

    def next_after(self, moment: datetime) -> datetime | None:
        raise ConfigurationError(f"a timing cannot be read: {self.text[:100]!r}")

    def words(self) -> str:
        return f"(unreadable: {self.text[:100]})"

    def facts(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.json.decode(self.text.encode())
        return found


class Timetable(Protocol):
    """The role of a store that keeps schedules; see `holdfast.store` for what every verb promises.

    A settled outcome that names a schedule in `ends` ends it, in the same transaction.
    """

    async def schedules(self, names: Collection[str] = ()) -> Listed:
        """The schedules of these names, or all of them, by name."""
        ...

    async def due_schedules(self, *, limit: int) -> Listed:
        """Those whose next slot has come and that are not paused, the longest overdue first."""
        ...

    async def put_schedule(self, schedule: Schedule) -> bool:
        """Write the schedule if the store has it at this version (0: not at all), one higher.

        False: somebody else has changed it meanwhile; read it again.
        """
        ...

    async def fire_schedule(self, fire: Fire) -> list[Enqueued] | None:
        """Add the tasks and move the schedule on, together; None: not due, or not at this version.

        A task whose slot has fired before is not added, and answered with `created=False`.
        """
        ...

    async def drop_schedule(self, name: str) -> bool:
        """Forget the schedule; False: there is none.  Tasks that were fired stay."""
        ...


def planned(schedule: Schedule, now: datetime) -> Plan:
    """Which slots a schedule fires now; those that passed follow its catch-up policy.

    The answer's `next_at` is later than now and later than any slot before: it only moves on.
    """
    assert schedule.next_at is not None and schedule.next_at <= now, "only what is due is planned"
    timing = schedule.timing
    after = schedule.next_at - _MICROSECOND
    due = slots_between(timing, after, now, limit=CATCH_UP_MAX + 1)
    if not due or due[0] != schedule.next_at:
        # It was written by code with other rules, such as other tables of time zones.
        due.insert(0, schedule.next_at)
    next_at = timing.next_after(max(now, due[-1]))
    fired = due if len(due) <= CATCH_UP_MAX else _latest(schedule, after, now)
    if timing.catch_up != "all":
        fired = fired[-1:]
    if timing.catch_up == "none" and now - fired[-1] > timedelta(seconds=LATE_S):
        fired = []
    missed = len(due) - len(fired)
    if len(due) > CATCH_UP_MAX and timing.catch_up == "all":
        missed = len(slots_between(timing, after, fired[0] - _MICROSECOND, limit=CATCH_UP_MAX))
    return Plan(fired, min(missed, CATCH_UP_MAX), next_at)


def fire_of(schedule: Schedule, plan: Plan, *, partitions: int) -> Fire:
    """The plan as the store carries it out."""
    return Fire(
        schedule.name,
        schedule.version,
        [task_of(schedule, slot, plan.next_at, partitions=partitions) for slot in plan.slots],
        plan.next_at,
        plan.slots[-1] if plan.slots else None,
        plan.missed,
    )


def task_of(
    schedule: Schedule, slot: datetime | None, next_at: datetime | None, *, partitions: int
) -> NewTask:
    """The task of one slot; its key makes sure that there is never a second one."""
    name = f"{schedule.name}@{slot.isoformat() if slot else 'now'}"
    partition = schedule.partition
    if partition is None:
        partition = Spread().partition(
            partitions=partitions,
            number=zlib.crc32(name.encode()),
            ordering_key=schedule.ordering_key,
        )
    said = msgspec.json.decode(schedule.metadata) if schedule.metadata else {}
    facts = ScheduleSlot(schedule.name, slot, next_at)
    return NewTask(
        queue=schedule.queue,
        partition=partition,
        kind=schedule.kind,
        payload=schedule.payload,
        priority=schedule.priority,
        fairness_key=schedule.fairness_key,
        weight=schedule.weight,
        ordering_key=schedule.ordering_key,
        metadata=msgspec.json.encode(said | {SLOT: facts}),
        key=None if slot is None else Key(SCOPE, name),
    )


def slot_of(metadata: bytes | None) -> ScheduleSlot | None:
    """Which schedule a task comes from; None for a task that somebody enqueued."""
    if metadata is None or SLOT.encode() not in metadata:
        return None
    try:
        return msgspec.convert(msgspec.json.decode(metadata).get(SLOT), ScheduleSlot | None)
    except (msgspec.MsgspecError, AttributeError, UnicodeDecodeError, RecursionError):
        return None


def merged(known: Schedule | None, wanted: Schedule, now: datetime) -> Schedule | None:
    """What to write so that the store holds the wanted schedule; None: it does already.

    Another timing starts anew, also one that had ended.  All other changes leave the next slot
    alone.  Whether it is paused, and what it did so far, is kept.
    """
    if known is None:
        return replace(wanted, version=0, next_at=wanted.timing.next_after(now))
    if known.fires_like(wanted) and known.source == wanted.source:
        return None
    next_at = known.next_at
    if known.timing != wanted.timing:
        next_at = wanted.timing.next_after(now)
    return replace(
        wanted,
        next_at=next_at,
        is_paused=known.is_paused,
        last_at=known.last_at,
        missed=known.missed,
        version=known.version,
    )


def columns_of(schedule: Schedule) -> dict[str, Any]:
    """A schedule as a row; times stay as they are."""
    return {
        "name": schedule.name,
        "version": schedule.version,
        "timing": text_of(schedule.timing),
        "kind": schedule.kind,
        "queue": schedule.queue,
        "priority": schedule.priority,
        "weight": schedule.weight,
        "partition": schedule.partition,
        "fairness_key": schedule.fairness_key,
        "ordering_key": schedule.ordering_key,
        "metadata": schedule.metadata,
        "payload": schedule.payload,
        "source": schedule.source,
        "paused": schedule.is_paused,
        "next_at": schedule.next_at,
        "last_at": schedule.last_at,
        "missed": schedule.missed,
    }


def schedule_of(row: Sequence[Any]) -> Schedule:
    """A row of the store, its columns in the order of `columns_of`."""
    found = dict(zip(_COLUMNS, row, strict=True))
    text = found.pop("timing")
    try:
        timing = timing_of(text)
    except ConfigurationError:
        timing = Unreadable(text)
    is_paused = bool(found.pop("paused"))
    return Schedule(timing=timing, is_paused=is_paused, **found)


_COLUMNS = (
    "name", "version", "timing", "kind", "queue", "priority", "weight", "partition",
    "fairness_key", "ordering_key", "metadata", "payload", "source", "paused",
    "next_at", "last_at", "missed",
)  # fmt: skip
# What a program does not say: a policy may choose another partition each time that it is asked.
_ITS_LIFE = {"source", "paused", "next_at", "last_at", "missed", "version", "partition"}


def _essence(schedule: Schedule) -> dict[str, Any]:
    return {name: v for name, v in columns_of(schedule).items() if name not in _ITS_LIFE}


def _latest(schedule: Schedule, after: datetime, now: datetime) -> list[datetime]:
    limit = CATCH_UP_MAX if schedule.timing.catch_up == "all" else 1
    return latest_slots(schedule.timing, after, now, limit=limit)
