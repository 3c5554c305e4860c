"""What was measured, as a page with a table and a picture."""

from __future__ import annotations

import os
import platform
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, TypedDict

from bench.catalog import Entry
from bench.keepers import Keepers
from holdfast.bench.environment import commit

PAGE, PICTURE = "benchmarks.md", "benchmarks.svg"
START, END = "<!-- figures: make bench-peers -->", "<!-- end of figures -->"
KEEPERS = {"postgres": "PostgreSQL", "sqlite": "SQLite", "redis": "Redis"}
COLUMNS = {
    "enqueue_single": "enqueue, one caller /s",
    "enqueue_concurrent": "enqueue, many callers /s",
    "enqueue_bulk": "enqueue in bulk /s",
    "drain": "drain /s",
    "latency_p50": "latency p50 ms",
    "latency_p99": "p99 ms",
    "sustained": "sustained /s",
    "pinned": "… snapshot held /s",
    "million": "drain of a million /s",
}
MILLISECONDS = frozenset({"latency_p50", "latency_p99", "unsynced_p50", "unsynced_p99"})


class Result(TypedDict):
    """One cell of one round; `failed` are the peer's last words."""

    peer: str
    cell: str
    figures: dict[str, float | None]
    failed: str | None


def line(result: Result) -> str:
    """For the terminal."""
    words = [
        f"{name} {value:,.1f}" for name, value in result["figures"].items() if value is not None
    ]
    what = "  ".join(words) or f"failed: {(result['failed'] or '')[-160:]}"
    return f"{result['peer']:16} {result['cell']:20} {what}"


def machine(
    keepers: Keepers, versions: Mapping[str, Mapping[str, str]], rounds: int, took_s: float
) -> dict[str, Any]:
    """Where it was measured, and with what."""
    return {
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "postgres": keepers.postgres.execute("SHOW server_version")[0],
        "redis": keepers.redis_version(),
        "holdfast": commit(),
        "versions": {name: dict(found) for name, found in versions.items()},
        "rounds": rounds,
        "took_s": round(took_s),
    }


Table = dict[str, dict[str, list[float]]]


def gathered(results: Sequence[Result]) -> Table:
    """The figures of all rounds, by peer and name."""
    table: Table = defaultdict(lambda: defaultdict(list))
    for result in results:
        for name, value in result["figures"].items():
            if value is not None:
                table[result["peer"]][name].append(value)
    return table


def write(
    folder: Path, entries: Sequence[Entry], results: Sequence[Result], where: Mapping[str, Any]
) -> None:
    """Put table and machine between the marks of the page, and draw the picture."""
    page = folder / PAGE
    before, _, rest = page.read_text().partition(START)
    _, _, after = rest.partition(END)
    table = gathered(results)
    beside = "\n".join(f"* {line}" for line in verdicts(entries, table))
    parts = [_where(where), *_tables(entries, table), beside]
    parts += [_failures(results), _hows(entries, where)]
    body = "\n\n".join(part for part in parts if part)
    page.write_text(f"{before}{START}\n\n{body}\n\n{END}{after}")
    draw(folder / PICTURE, entries, table)


def verdicts(entries: Sequence[Entry], table: Table) -> list[str]:
    """Our best beside the best of the others, by the medians of this run."""
    lines = []
    for keeper in ("postgres", "sqlite"):
        here = [entry for entry in entries if entry.keeper == keeper]
        ours, theirs = _best(here, table, "drain", max)
        if ours and theirs:
            times = ours[0] / theirs[0]
            lines.append(
                f"drain on {KEEPERS[keeper]}: {ours[1]} {ours[0]:,.0f}/s, {times:.1f} times the "
                f"best peer, {theirs[1]} with {theirs[0]:,.0f}/s"
            )
    ours, theirs = _best(entries, table, "latency_p50", min)
    if ours and theirs:
        lines.append(
            f"latency with synced enqueues, p50: {ours[1]} {ours[0]:.1f} ms; the lowest of the "
            f"peers is {theirs[1]} with {theirs[0]:.1f} ms"
        )
    return lines


Best = tuple[float, str] | None


def _best(
    entries: Sequence[Entry], table: Table, name: str, first: Callable[..., Best]
) -> tuple[Best, Best]:
    """Of ours and of the others: the median with the name of whoever has it."""
    found: dict[bool, list[tuple[float, str]]] = {True: [], False: []}
    for entry in entries:
        if values := table[entry.name].get(name):
            found[entry.is_ours].append((median(values), entry.name))
    return first(found[True], default=None), first(found[False], default=None)


def _where(where: Mapping[str, Any]) -> str:
    redis = f", Redis {where['redis']}" if where["redis"] else ""
    rounds = "one round" if where["rounds"] == 1 else f"{where['rounds']} rounds"
    return (
        f"Measured on {where['machine']}, Python {where['python']}, PostgreSQL {where['postgres']}"
        f"{redis}, Holdfast at {where['holdfast']}; {rounds} in "
        f"{where['took_s'] / 60:.0f} minutes, everybody in turn in each. Median, and in brackets "
        "the lowest and the highest round."
    )


def _tables(entries: Sequence[Entry], table: Table) -> list[str]:
    found = []
    for keeper, title in KEEPERS.items():
        here = [entry for entry in entries if entry.keeper == keeper and entry.name in table]
        if not here:
            continue
        columns = [name for name in COLUMNS if any(name in table[entry.name] for entry in here)]
        if keeper == "redis":
            columns.insert(columns.index("latency_p99") + 1, "unsynced_p50")
        titles = COLUMNS | {"unsynced_p50": "p50 with `everysec` ms"}
        rows = [
            f"| {title} | " + " | ".join(titles[name] for name in columns) + " |",
            "|--|" + "--|" * len(columns),
        ]
        for entry in sorted(here, key=lambda one: -_middle(table[one.name].get("drain"))):
            cells = [_cell(name, table[entry.name].get(name)) for name in columns]
            rows.append(f"| {entry.name} | " + " | ".join(cells) + " |")
        found.append("\n".join(rows))
    return found


def _middle(values: Sequence[float] | None) -> float:
    return median(values) if values else 0.0


def _cell(name: str, values: Sequence[float] | None) -> str:
    if not values:
        return "-"
    form = "{:.1f}" if name in MILLISECONDS else "{:,.0f}"
    middle, low, high = (form.format(f(values)) for f in (median, min, max))
    return middle if low == high else f"{middle} ({low} to {high})"


def _failures(results: Sequence[Result]) -> str:
    failed = {(r["peer"], r["cell"]): r["failed"] for r in results if r["failed"]}
    if not failed:
        return ""
    lines = [f"* {peer}, {cell}: {_short(words)}" for (peer, cell), words in failed.items()]
    return "Cells without a figure:\n\n" + "\n".join(lines)


def _short(words: str | None) -> str:
    return " ".join((words or "").split())[-200:]


def _hows(entries: Sequence[Entry], where: Mapping[str, Any]) -> str:
    rows = ["| peer | version | store | how it ran |", "|--|--|--|--|"]
    for entry in entries:
        versions = ", ".join(f"{n} {v}" for n, v in where["versions"][entry.name].items())
        rows.append(f"| {entry.name} | {versions} | {KEEPERS[entry.keeper]} | {entry.how} |")
    return "\n".join(rows)


def draw(path: Path, entries: Sequence[Entry], table: Table) -> None:
    """Drain and latency of everybody, one bar each."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    figure = Figure(figsize=(10.0, 0.6 + 0.42 * len(entries)), layout="constrained")
    colours = {"postgres": "#2f6fab", "sqlite": "#2a9d6f", "redis": "#c0504d"}
    panels = figure.subplots(1, 2)
    for axes, name, title in (
        (panels[0], "drain", "drain of a backlog, tasks a second"),
        (panels[1], "latency_p50", "enqueue to handler, p50 in ms (log)"),
    ):
        here = [entry for entry in entries if table[entry.name].get(name)]
        if not here:
            continue
        here.sort(key=lambda entry: _middle(table[entry.name][name]), reverse=name != "drain")
        values = [_middle(table[entry.name][name]) for entry in here]
        bars = axes.barh(
            [entry.name for entry in here], values, color=[colours[e.keeper] for e in here]
        )
        axes.bar_label(bars, [_cell(name, [value]) for value in values], padding=3, fontsize=8)
        axes.set_title(title, fontsize=10)
        axes.margins(x=0.2)
        if name != "drain":
            axes.set_xscale("log")
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    handles = [Patch(color=colour) for colour in colours.values()]
    figure.legend(handles, KEEPERS.values(), loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(path, metadata={"Date": None})
