"""What `holdfast top` shows: one look at the store as a value, and how it reads on a screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from holdfast.cli.node import as_text as node_text
from holdfast.cli.node import in_order
from holdfast.cli.overview import Overview, overviews
from holdfast.cli.overview import as_text as queue_text
from holdfast.cli.words import NOTHING, age, short
from holdfast.clock import Clock
from holdfast.ring import DutyRecord
from holdfast.store import Member, Store
from holdfast.task import TaskId

KINDS_MAX = 8
LATE_S = 10.0  # a duty that is overdue by so much has no keeper
LAG_S = 0.5  # above it a node's handlers keep its loop from everything else

QUEUES = ("submitted", "oldest", "trend", "out", "waiting", "processing", "error", "nodes")
NODES = ("running", "slots", "rss", "lag", "lease")


@dataclass(frozen=True, slots=True)
class RunningKind:
    """The attempts of one kind that run now, and the task among them that was enqueued first."""

    kind: str
    count: int
    oldest: TaskId
    node: str
    enqueued_at: datetime
    deadline_at: datetime | None


@dataclass(frozen=True, slots=True)
class SlowKind:
    """How long attempts of one kind took lately, on all nodes."""

    kind: str
    attempts: int
    mean_s: float
    max_s: float


@dataclass(frozen=True, slots=True)
class Frame:
    """One look."""

    at: datetime
    queues: Sequence[Overview]
    members: Sequence[Member]
    duties: Sequence[DutyRecord]
    running: Sequence[RunningKind]
    trends: Mapping[str, float] = field(default_factory=dict)  # tasks a second, by queue

    def to_do(self) -> list[str]:
        """What a person should look at, each with the command that shows more."""
        return [*self._of_queues(), *self._of_nodes(), *self._of_duties()]

    def out(self, queue: str) -> float | None:
        """Tasks a second that left the queue lately; None: no node tells."""
        told = [pace for pace in self._paces() if pace["over_s"] > 0]
        return sum(pace["out"].get(queue, 0) / pace["over_s"] for pace in told) if told else None

    def slow(self) -> list[SlowKind]:
        """The kinds whose attempts took longest lately, the slowest first."""
        tallies: dict[str, list[Mapping[str, Any]]] = {}
        for pace in self._paces():
            for kind, tally in pace["kinds"].items():
                tallies.setdefault(kind, []).append(tally)
        found = []
        for kind, each in tallies.items():
            attempts = sum(one["attempts"] for one in each)
            mean_s = sum(one["sum_s"] for one in each) / attempts
            found.append(SlowKind(kind, attempts, mean_s, max(one["max_s"] for one in each)))
        return sorted(found, key=lambda one: one.mean_s, reverse=True)[:KINDS_MAX]

    def _paces(self) -> list[Mapping[str, Any]]:
        told = [one.facts.get("pace") for one in self.members if one.is_alive]
        return [pace for pace in told if pace]  # a node of an older version tells none

    def _of_queues(self) -> list[str]:
        lines = []
        for one in self.queues:
            name, found = one.survey.queue, one.survey
            if one.is_deserted:
                lines.append(f"no node serves queue {name}: holdfast worker APP --queue {name}")
            pauses = [text for text in one.notes if text.startswith("paused")]
            lines += [f"queue {name} is {text}: holdfast queue rules {name}" for text in pauses]
            if found.stuck:
                lines.append(
                    f"{found.stuck:,} of queue {name} past the deadline: holdfast task list --stuck"
                )
        if errors := sum(one.survey.error for one in self.queues):
            lines.append(f"{errors:,} in ERROR: holdfast error list --group")
        return lines

    def _of_nodes(self) -> list[str]:
        lines = []
        for one in self.members:
            lag_s = one.facts.get("lag_s") or 0.0
            if not one.is_alive:
                lines.append(f"the lease of node {short(one.node)} has ended: holdfast node list")
            elif one.asked:
                lines.append(f"node {short(one.node)} was asked to {one.asked}")
            if one.is_alive and lag_s > LAG_S:
                lines.append(f"the loop of node {short(one.node)} lags by {age(lag_s)}")
        return lines

    def _of_duties(self) -> list[str]:
        return [
            f"nobody keeps the {duty.name}: overdue by {age(-duty.due_in_s)}"
            for duty in self.duties
            if duty.due_in_s < -LATE_S
        ]

    def as_json(self) -> dict[str, Any]:
        """The same for programs."""
        return {
            "at": self.at.isoformat(timespec="milliseconds"),
            "queues": [
                asdict(one.survey)
                | {"trend": self.trends.get(one.survey.queue), "out": self.out(one.survey.queue)}
                | {"nodes": one.nodes}
                | {"notes": one.notes}
                for one in self.queues
            ],
            "nodes": [
                {"node": one.node, "is_alive": one.is_alive, "facts": dict(one.facts)}
                for one in in_order(self.members)
            ],
            "running": [asdict(one) | {"oldest": str(one.oldest)} for one in self.running],
            "slow": [asdict(one) for one in self.slow()],
            "duties": [duty._asdict() for duty in self.duties],
            "to_do": self.to_do(),
        }


async def look(store: Store, clock: Clock, before: Frame | None = None) -> Frame:
    """Look once; with an earlier look, the queues have trends."""
    members = await store.members()
    frame = Frame(
        clock.now(),
        await overviews(store),
        members,
        await store.duties(),
        await _running(store, [one for one in members if one.is_alive]),
    )
    if before is None:
        return frame
    passed_s = max((frame.at - before.at).total_seconds(), 0.001)
    was = {one.survey.queue: _load(one) for one in before.queues}
    trends = {
        one.survey.queue: (_load(one) - was[one.survey.queue]) / passed_s
        for one in frame.queues
        if one.survey.queue in was
    }
    return Frame(frame.at, frame.queues, members, frame.duties, frame.running, trends)


def _load(one: Overview) -> int:
    return one.survey.submitted + one.survey.processing


async def _running(store: Store, members: Sequence[Member]) -> list[RunningKind]:
    """The kinds that run, the task that was enqueued first on top."""
    kinds: dict[str, list[TaskId]] = {}
    for member in members:
        for row in await store.running_of(member.node):
            kinds.setdefault(row.kind, []).append(row.id)
    oldest = {min(ids): (kind, len(ids)) for kind, ids in kinds.items()}
    tasks = await store.get(sorted(oldest)[:KINDS_MAX])
    return [
        RunningKind(*oldest[id], id, task.node or "", task.enqueued_at, task.deadline_at)
        for id, task in sorted(tasks.items())
    ]


# ── on the screen ─────────────────────────────────────────────────────────────────────────────


def drawn(frame: Frame, *, title: str) -> RenderableType:
    """The frame for a terminal of 80 columns or more."""
    head = Text(f"{title}   {frame.at.astimezone():%H:%M:%S}", style="bold", no_wrap=True)
    parts: list[RenderableType] = [head, Text(), _queues(frame), Text(), _nodes(frame)]
    if frame.running:
        parts += [Text(), _running_table(frame)]
    if slow := frame.slow():
        parts += [Text(), _slow_table(slow)]
    if frame.duties:
        parts += [Text(), _duties(frame)]
    parts += [Text(), *_to_do(frame)]
    return Group(*parts)


def _queues(frame: Frame) -> Table:
    table = _table("queue", QUEUES)
    for one in frame.queues:
        name = one.survey.queue
        trend, out = _trend(frame.trends.get(name)), _rate(frame.out(name))
        row = queue_text(one) | {"trend": trend, "out": out}
        style = "red" if one.is_deserted else ""
        table.add_row(*(Text(row[name], style) for name in ("queue", *QUEUES)))
    if not frame.queues:
        table.add_row(Text("no task yet", "bright_black"))
    return table


def _nodes(frame: Frame) -> Table:
    table = _table("node", NODES, "host", "duties")
    for one in in_order(frame.members):
        row = node_text(one, frame.duties)
        style = "" if one.is_alive else "bright_black"
        table.add_row(*(Text(row[name], style) for name in ("node", *NODES, "host", "duties")))
    if not frame.members:
        table.add_row(Text("no node", "red"))
    return table


def _running_table(frame: Frame) -> Table:
    table = _table("running", ("tasks", "enqueued", "deadline"), "first of them")
    for one in frame.running:
        left_s = (one.deadline_at - frame.at).total_seconds() if one.deadline_at else None
        table.add_row(
            Text(one.kind),
            f"{one.count:,}",
            f"{age((frame.at - one.enqueued_at).total_seconds())} ago",
            NOTHING if left_s is None else f"in {age(left_s)}" if left_s > 0 else "past",
            Text(f"task {one.oldest} on {short(one.node)}"),
        )
    return table


def _slow_table(slow: Sequence[SlowKind]) -> Table:
    table = _table("slowest", ("attempts", "mean", "longest"))
    for one in slow:
        mean, longest = (f"{seconds:,.3f} s" for seconds in (one.mean_s, one.max_s))
        table.add_row(Text(one.kind), f"{one.attempts:,}", mean, longest)
    return table


def _duties(frame: Frame) -> Table:
    table = _table("duty", ("due",), "kept by")
    for duty in frame.duties:
        is_late = duty.due_in_s < -LATE_S
        due = f"{age(-duty.due_in_s)} ago" if duty.due_in_s < 0 else f"in {age(duty.due_in_s)}"
        table.add_row(Text(duty.name), Text(due, "red" if is_late else ""), short(duty.holder))
    return table


def _to_do(frame: Frame) -> list[RenderableType]:
    lines = frame.to_do()
    if not lines:
        return [Text("nothing to look at", "green")]
    return [Text("look at", "bold"), *(Text(f"  {line}", "red") for line in lines)]


def _table(name: str, numbers: Sequence[str], *texts: str) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column(name, no_wrap=True, min_width=8)
    for number in numbers:
        table.add_column(number, justify="right", no_wrap=True)
    for text in texts:
        table.add_column(text)
    return table


def _rate(rate: float | None) -> str:
    return NOTHING if rate is None else f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s"


def _trend(rate: float | None) -> str:
    if rate is None:
        return NOTHING
    return "0/s" if abs(rate) < 0.5 else f"{rate:+,.0f}/s"
