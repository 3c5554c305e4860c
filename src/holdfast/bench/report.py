"""What a benchmark says: medians with their spread, judged by marks, as one line or as a table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from holdfast.bench.load import Run

SETTINGS = ("fsync", "synchronous_commit", "journal_mode", "synchronous")

# The values that are as durable as the defaults, or more.
DURABLE: Mapping[str, frozenset[str]] = {
    "fsync": frozenset({"on"}),
    "full_page_writes": frozenset({"on"}),
    "synchronous_commit": frozenset({"on", "remote_apply"}),
    "journal_mode": frozenset({"wal"}),
    "synchronous": frozenset({"FULL", "EXTRA"}),
}


def weaknesses(durability: Mapping[str, str]) -> list[str]:
    """Settings under which a commit may be lost, each as `name = value`."""
    return [
        f"{name} = {durability[name]}"
        for name, values in DURABLE.items()
        if name in durability and durability[name] not in values
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What a figure should reach; with `when`, only where another figure is large enough."""

    figure: str
    at_least: float | None = None
    at_most: float | None = None
    when: tuple[str, float] | None = None

    def judged(self, figures: Mapping[str, float | None]) -> Verdict:
        value = figures.get(self.figure)
        if value is None:
            return Verdict(self, None)
        if self.when is not None:
            other = figures.get(self.when[0])
            if other is None or other < self.when[1]:
                return Verdict(self, None)
        is_enough = self.at_least is None or value >= self.at_least
        return Verdict(self, is_enough and (self.at_most is None or value <= self.at_most))

    @property
    def text(self) -> str:
        limits = [("at least", self.at_least), ("at most", self.at_most)]
        words = [f"{word} {shown(limit)}" for word, limit in limits if limit is not None]
        if self.when is not None:
            words.append(f"where {self.when[0]} is {shown(self.when[1])} or more")
        return f"{self.figure} {', '.join(words)}"


class Verdict(NamedTuple):
    """Whether a mark was reached; None: it does not apply here, or there is no figure."""

    mark: Mark
    is_reached: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The result of one benchmark."""

    scenario: str
    store: str
    tasks: int
    runs: Sequence[Run]
    marks: Sequence[Mark]
    environment: Mapping[str, Any]
    durability: Mapping[str, str]
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def weaknesses(self) -> list[str]:
        return weaknesses(self.durability)

    @property
    def problems(self) -> list[str]:
        """Where a store did not agree with what was enqueued."""
        found = [check.problem for run in self.runs for check in run.checks]
        return [problem for problem in found if problem]

    @property
    def medians(self) -> dict[str, float | None]:
        """One figure for all runs; none at all while the store disagrees or may lose commits."""
        return {name: median(values) if values else None for name, values in self._values.items()}

    @property
    def spread(self) -> dict[str, tuple[float, float] | None]:
        return {
            name: (min(values), max(values)) if values else None
            for name, values in self._values.items()
        }

    @property
    def verdicts(self) -> list[Verdict]:
        return [mark.judged(self.medians) for mark in self.marks]

    @property
    def is_passed(self) -> bool:
        reached = [verdict.is_reached for verdict in self.verdicts]
        return bool(self.runs) and not self.problems and False not in reached

    @property
    def notes(self) -> list[str]:
        notes = [f"no figures: {text} is weaker than the default" for text in self.weaknesses]
        notes += [f"no figures: {problem}" for problem in self.problems]
        return notes + list(dict.fromkeys(note for run in self.runs for note in run.notes))

    @property
    def _values(self) -> dict[str, list[float]]:
        if self.weaknesses or self.problems:
            return {name: [] for run in self.runs[:1] for name in run.figures}
        return {
            name: [value for run in self.runs if (value := run.figures.get(name)) is not None]
            for name in (self.runs[0].figures if self.runs else ())
        }

    def line(self) -> str:
        """The whole report as one line of JSON."""
        found = {
            "scenario": self.scenario,
            "store": self.store,
            "tasks": self.tasks,
            "runs": len(self.runs),
            **self.options,
            **{name: rounded(value) for name, value in self.medians.items()},
            **{name: self.durability[name] for name in SETTINGS if name in self.durability},
            "spread": {
                name: None if ends is None else [rounded(end) for end in ends]
                for name, ends in self.spread.items()
            },
            "marks": [{"mark": mark.text, "reached": reached} for mark, reached in self.verdicts],
            "passed": self.is_passed,
            "notes": self.notes,
            "environment": dict(self.environment),
            "durability": dict(self.durability),
        }
        return json.dumps(found, separators=(",", ":"))

    def print_on(self, console: Console) -> None:
        """The same for people."""
        options = "".join(f", {name} {value}" for name, value in self.options.items() if value)
        title = f"{self.scenario} on {self.store}: {self.tasks:,} tasks, "
        table = Table(title=f"{title}median of {len(self.runs)}{options}", title_justify="left")
        table.add_column("figure")
        for name in ("median", "min", "max"):
            table.add_column(name, justify="right")
        table.add_column("mark")
        for name, value in self.medians.items():
            low, high = self.spread[name] or (None, None)
            table.add_row(name, shown(value), shown(low), shown(high), self._marks_of(name))
        console.print(table)
        for note in self.notes:
            console.print(f"note: {note}", markup=False, highlight=False)
        for label, facts in (("store", self.durability), ("machine", self.environment)):
            words = ", ".join(f"{name} {value}" for name, value in facts.items() if value)
            console.print(f"{label}: {words}", markup=False, highlight=False)

    def _marks_of(self, name: str) -> str:
        words = {True: "reached", False: "MISSED", None: "does not apply"}
        return "\n".join(
            f"{words[reached]}: {mark.text.removeprefix(name + ' ')}"
            for mark, reached in self.verdicts
            if mark.figure == name
        )


def rounded(value: float | None) -> float | None:
    """Four digits are more than a benchmark knows."""
    if value is None or value >= 1_000:
        return None if value is None else round(value)
    return float(f"{value:.4g}")


def shown(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.4g}"
