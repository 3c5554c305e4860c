"""`holdfast bench SCENARIO`: what can be asked for.

Exit codes: 0 measured (also when a mark was missed), 1 a mark was missed under `--strict`, 2 the
store is set up to lose commits, so there are no figures, 8 the store does not hold what was
enqueued.
"""

from __future__ import annotations

import asyncio
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from holdfast.bench.backlog import Backlog
from holdfast.bench.drain import SLOTS, Drain
from holdfast.bench.enqueue import Enqueue
from holdfast.bench.fairness import Fairness
from holdfast.bench.ground import ground
from holdfast.bench.idle import Idle
from holdfast.bench.latency import Latency
from holdfast.bench.load import Profile
from holdfast.bench.measure import Scenario, measured
from holdfast.bench.plot import drawing
from holdfast.bench.recovery import Recovery
from holdfast.bench.report import Report
from holdfast.bench.sustained import AHEAD, BATCH, Sustained
from holdfast.bench.timers import Timers
from holdfast.worker.memory import collect_seldom

EXIT_MISSED, EXIT_WEAK, EXIT_DISAGREES = 1, 2, 8

app = typer.Typer(
    name="bench",
    help="Load and latency on this machine, beside what the bare store can do.",
    no_args_is_help=True,
)


class StoreName(StrEnum):
    SQLITE = "sqlite"
    POSTGRES = "postgres"


class PeerName(StrEnum):
    PGQUEUER = "pgqueuer"


StoreOption = Annotated[StoreName, typer.Option("--store", help="Where the tasks are kept.")]
UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        help="A PostgreSQL to use; a schema is made there and dropped.  "
        "Without it, a private server is started.",
    ),
]
RunsOption = Annotated[int, typer.Option("--runs", min=1, help="The figures are their medians.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Exactly one line on stdout.")]
StrictOption = Annotated[bool, typer.Option("--strict", help="Exit 1 when a mark was missed.")]
ProfileOption = Annotated[
    Path | None,
    typer.Option("--profile", help="Write a cProfile of the node there; it slows everything."),
]


def tasks_option(help: str) -> object:
    return typer.Option("--tasks", min=1, help=help)


@app.command()
def drain(
    store: StoreOption = StoreName.SQLITE,
    url: UrlOption = None,
    tasks: Annotated[int, tasks_option("Tasks that wait when the node starts.")] = 50_000,
    beside: Annotated[
        PeerName | None, typer.Option("--beside", help="Measure a peer on the same server too.")
    ] = None,
    slots: Annotated[
        int, typer.Option("--slots", min=1, help="The node's slots for async handlers.")
    ] = SLOTS,
    runs: RunsOption = 3,
    as_json: JsonOption = False,
    strict: StrictOption = False,
    profile: ProfileOption = None,
) -> None:
    """How fast one node empties a queue, beside the store's own ceiling."""
    if beside and store is not StoreName.POSTGRES:
        raise typer.BadParameter("pgqueuer runs on PostgreSQL only: add --store postgres")
    scenario = Drain(
        tasks=tasks, beside=beside and beside.value, slots=slots, profile=Profile(profile)
    )
    _measure(scenario, store, url, runs=runs, as_json=as_json, strict=strict)


@app.command()
def enqueue(
    store: StoreOption = StoreName.SQLITE,
    url: UrlOption = None,
    tasks: Annotated[int, tasks_option("Tasks of a hundred callers, and again in bulk.")] = 20_000,
    runs: RunsOption = 3,
    as_json: JsonOption = False,
    strict: StrictOption = False,
    profile: ProfileOption = None,
) -> None:
    """How fast tasks are added: by one caller, by a hundred at once, in bulk."""
    scenario = Enqueue(tasks=tasks, profile=Profile(profile))
    _measure(scenario, store, url, runs=runs, as_json=as_json, strict=strict)


@app.command()
def latency(
    store: StoreOption = StoreName.SQLITE,
    url: UrlOption = None,
    tasks: Annotated[int, tasks_option("Samples, at 50 a second.")] = 1_000,
    across: Annotated[bool, typer.Option("--across", help="Enqueue from another process.")] = False,
    runs: RunsOption = 3,
    as_json: JsonOption = False,
    strict: StrictOption = False,
    profile: ProfileOption = None,
) -> None:
    """From the commit of a task to the start of its handler, on an idle node."""
    scenario = Latency(tasks=tasks, across=across, profile=Profile(profile))
    _measure(scenario, store, url, runs=runs, as_json=as_json, strict=strict)


@app.command()
def backlog(
    store: StoreOption = StoreName.SQLITE,
    url: UrlOption = None,
    tasks: Annotated[int, tasks_option("Tasks that are timed.")] = 20_000,
    small: Annotated[int, typer.Option("--small", help="Tasks that wait behind them.")] = 10_000,
    large: Annotated[int, typer.Option("--large", help="Tasks at the start.")] = 1_000_000,
    runs: RunsOption = 3,
    as_json: JsonOption = False,
    strict: StrictOption = False,
    profile: ProfileOption = None,
) -> None:
    """Whether a task costs more when a million wait behind it."""
    scenario = Backlog(tasks=tasks, small=small, large=large, profile=Profile(profile))
    _measure(scenario, store, url, runs=runs, as_json=as_json, strict=strict)


@app.command()
def sustained(
    store: StoreOption = StoreName.SQLITE,
    url: UrlOption = None,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.1, help="Of each part; the last sixth counts.")
    ] = 60.0,
    ahead: Annotated[
        int, typer.Option("--ahead", min=BATCH, help="Tasks that the producers are ahead.")
    ] = AHEAD,
    runs: RunsOption = 3,
    as_json: JsonOption = False,
    strict: StrictOption = False,
    profile: ProfileOption = None,
) -> None:
    """Producers and a node at full speed, without and with what stops vacuum."""
    scenario = Sustained(seconds=seconds, ahead=ahead, profile=Profile(profile))
    _measure(scenario, store, url, runs=runs, as_json=as_json, strict=strict)


@app.command()
def fairness(
    store: StoreOption = StoreName.SQLITE,
    url: UrlOption = None,
    tasks: Annotated[int, tasks_option("Tasks of the longest lines; the others scale.")] = 100_000,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw the 95:5 case there, as SVG and PNG.")
    ] = None,
    runs: RunsOption = 3,
    as_json: JsonOption = False,
    strict: StrictOption = False,
    profile: ProfileOption = None,
) -> None:
    """Who gets how much of a node while everybody waits, and what it costs to be fair."""
    with drawing(plot) as compared:
        scenario = Fairness(tasks=tasks, profile=Profile(profile), compared=compared)
        _measure(scenario, store, url, runs=runs, as_json=as_json, strict=strict)


@app.command()
def timers(
    store: StoreOption = StoreName.SQLITE,
    url: UrlOption = None,
    tasks: Annotated[int, tasks_option("Single tasks, due one after the other.")] = 1_000,
    burst: Annotated[int, typer.Option("--burst", min=1, help="Tasks due at one moment.")] = 20_000,
    small: Annotated[int, typer.Option("--small", help="Tasks that wait meanwhile.")] = 10_000,
    waiting: Annotated[int, typer.Option("--waiting", help="And again with so many.")] = 1_000_000,
    runs: RunsOption = 3,
    as_json: JsonOption = False,
    strict: StrictOption = False,
) -> None:
    """How late waiting tasks start while a million others wait."""
    scenario = Timers(tasks=tasks, burst=burst, small=small, waiting=waiting)
    _measure(scenario, store, url, runs=runs, as_json=as_json, strict=strict)


class CaseName(StrEnum):
    PROCESS = "process"
    MACHINE = "machine"


@app.command()
def recovery(
    store: StoreOption = StoreName.SQLITE,
    url: UrlOption = None,
    kills: Annotated[int, typer.Option("--kills", min=1, help="How many nodes die.")] = 20,
    case: Annotated[
        CaseName, typer.Option("--case", help="The process alone, or its renewer with it.")
    ] = CaseName.PROCESS,
    runs: RunsOption = 1,
    as_json: JsonOption = False,
    strict: StrictOption = False,
) -> None:
    """How long the tasks of a dead node wait until they run again."""
    scenario = Recovery(kills=kills, case=case.value)
    _measure(scenario, store, url, runs=runs, as_json=as_json, strict=strict)


@app.command()
def idle(
    store: StoreOption = StoreName.SQLITE,
    url: UrlOption = None,
    seconds: Annotated[float, typer.Option("--seconds", min=1, help="Of idleness.")] = 30.0,
    runs: RunsOption = 3,
    as_json: JsonOption = False,
    strict: StrictOption = False,
) -> None:
    """What a node costs that has nothing to do."""
    _measure(Idle(seconds=seconds), store, url, runs=runs, as_json=as_json, strict=strict)


def _measure(
    scenario: Scenario,
    store: StoreName,
    url: str | None,
    *,
    runs: int,
    as_json: bool,
    strict: bool,
) -> None:
    """Measure, report, and end with the code that fits."""

    def say(text: str) -> None:
        typer.echo(text, err=True)

    collect_seldom()  # as `holdfast worker` does
    with ground(store.value, url) as found:
        report = asyncio.run(measured(scenario, found, runs=runs, say=say))
    if as_json:
        typer.echo(report.line())
    else:
        report.print_on(Console(file=sys.stdout))
    if code := exit_code(report, strict=strict):
        raise typer.Exit(code)


def exit_code(report: Report, *, strict: bool) -> int:
    if report.weaknesses:
        return EXIT_WEAK
    if report.problems:
        return EXIT_DISAGREES
    return EXIT_MISSED if strict and not report.is_passed else 0
