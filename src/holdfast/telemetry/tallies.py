"""What the events add up to, in plain numbers.

A listener is called in the middle of the work, for every task: it adds a few integers here, and
whoever wants to read them pays for the reading.  Events come from several threads.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.telemetry.events import (
    DutyLost,
    Events,
    IncidentRaised,
    LagMeasured,
    LeaseEnded,
    LeaseRenewed,
    NodeStopped,
    SettleRefused,
    SlotsCounted,
    Surveyed,
    TaskEnqueued,
    TaskGrabbed,
    TaskSettled,
)

WATCHER = "watcher"
NAMES_MAX = 200  # kinds, and queues; the names beyond share one
OTHER = "other"
BOUNDS_S = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0,
)  # fmt: skip


class Histogram:
    """How often a number of seconds fell between two bounds."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.sum_s += seconds

    def copy(self) -> Histogram:
        copy = Histogram()
        copy.counts, copy.sum_s = list(self.counts), self.sum_s
        return copy


class Names(dict[str, str]):
    """Names as labels: the first so many as they are, all later ones as one."""

    def __missing__(self, name: str) -> str:
        if len(self) >= NAMES_MAX:
            return OTHER  # not kept: memory is bounded too
        self[name] = name
        return name


def _counts() -> defaultdict[Any, int]:
    return defaultdict(int)


def _times() -> defaultdict[Any, Histogram]:
    return defaultdict(Histogram)


@dataclass(slots=True)
class Totals:
    """Everything that was counted, at one moment."""

    enqueued: dict[str, int] = field(default_factory=_counts)  # by queue
    attempts: dict[tuple[str, str, str], int] = field(default_factory=_counts)  # queue, kind, event
    waited: dict[tuple[str, str], Histogram] = field(default_factory=_times)  # queue, kind
    ran: dict[tuple[str, str], Histogram] = field(default_factory=_times)
    slots: dict[str, SlotsCounted] = field(default_factory=dict)  # by node
    surveys: dict[str, Surveyed] = field(default_factory=dict)  # by node, the latest last
    incidents: dict[str, int] = field(default_factory=_counts)  # by kind
    lag: Histogram = field(default_factory=Histogram)
    margin_s: float | None = None
    leases_ended: int = 0
    settles_refused: int = 0


class Tallies:
    """Adds up the events of one stream from its making to its `close`."""

    def __init__(self, events: Events) -> None:
        self._guard = threading.Lock()
        self._totals = Totals()
        self._kinds, self._queues, self._incidents = Names(), Names(), Names()
        self._adders: dict[type[object], Callable[[Any], None]] = {
            TaskEnqueued: self._enqueued,
            TaskGrabbed: self._grabbed,
            TaskSettled: self._settled,
            SettleRefused: self._refused,
            SlotsCounted: self._slots_counted,
            LagMeasured: self._late,
            LeaseRenewed: self._renewed,
            LeaseEnded: self._lease_ended,
            Surveyed: self._surveyed,
            IncidentRaised: self._raised,
            DutyLost: self._duty_lost,
            NodeStopped: self._node_stopped,
        }
        self._leave = events.listen(self._hear)

    def close(self) -> None:
        """Hear no more.  Safe to repeat."""
        self._leave()
        self._leave = lambda: None

    def read(self) -> Totals:
        """A copy that nobody changes any more."""
        with self._guard:
            now = self._totals
            return Totals(
                dict(now.enqueued),
                dict(now.attempts),
                {key: one.copy() for key, one in now.waited.items()},
                {key: one.copy() for key, one in now.ran.items()},
                dict(now.slots),
                dict(now.surveys),
                dict(now.incidents),
                now.lag.copy(),
                now.margin_s,
                now.leases_ended,
                now.settles_refused,
            )

    def queues(self, names: Sequence[str]) -> list[str]:
        """The labels of these queues."""
        with self._guard:
            return [self._queues[name] for name in names]

    def _hear(self, event: object) -> None:
        if (add := self._adders.get(type(event))) is not None:
            with self._guard:
                add(event)

    # ── of every task ─────────────────────────────────────────────────────────────────────

    def _enqueued(self, event: TaskEnqueued) -> None:
        self._totals.enqueued[self._queues[event.queue]] += 1

    def _grabbed(self, event: TaskGrabbed) -> None:
        if event.waited_s is not None:
            key = self._queues[event.queue], self._kinds[event.kind]
            self._totals.waited[key].add(event.waited_s)

    def _settled(self, event: TaskSettled) -> None:
        queue, kind = self._queues[event.queue], self._kinds[event.kind]
        self._totals.attempts[queue, kind, event.event] += 1
        self._totals.ran[queue, kind].add(event.ran_s)

    # ── seldom ────────────────────────────────────────────────────────────────────────────

    def _refused(self, event: SettleRefused) -> None:
        self._totals.settles_refused += 1

    def _slots_counted(self, event: SlotsCounted) -> None:
        self._totals.slots[event.node] = event

    def _late(self, event: LagMeasured) -> None:
        self._totals.lag.add(event.seconds)

    def _renewed(self, event: LeaseRenewed) -> None:
        self._totals.margin_s = event.margin_s

    def _lease_ended(self, event: LeaseEnded) -> None:
        self._totals.leases_ended += 1

    def _surveyed(self, event: Surveyed) -> None:
        self._totals.surveys.pop(event.node, None)
        self._totals.surveys[event.node] = event

    def _raised(self, event: IncidentRaised) -> None:
        self._totals.incidents[self._incidents[event.kind]] += 1

    def _duty_lost(self, event: DutyLost) -> None:
        """Somebody else watches now: what we saw last must not be shown beside what they see."""
        if event.duty == WATCHER:
            self._totals.surveys.pop(event.node, None)

    def _node_stopped(self, event: NodeStopped) -> None:
        self._totals.surveys.pop(event.node, None)
        self._totals.slots.pop(event.node, None)
        if not self._totals.slots:
            self._totals.margin_s = None
