"""`holdfast sim` and `holdfast verify`: histories that are lived through, and judged."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.problems import CHECK_FAILED, note


def sim(
    seed: Annotated[int | None, typer.Option(help="Replay this one.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many, from --first on.")] = 100,
    first: Annotated[int, typer.Option(min=0, help="The first of them.")] = 0,
    trace: Annotated[bool, typer.Option("--trace", help="Print the history.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write the history of --seed here.")] = None,
    processes: Annotated[int | None, typer.Option(min=1, help="One for each processor.")] = None,
) -> None:
    """Live through whole clusters in virtual time, with faults drawn by the seed.

    The engine is the real one; store, bus and clocks are simulated.  A seed whose history breaks a
    promise is printed with the command that replays it.  Exit 8: some did.
    """
    if seed is None:
        if trace or out is not None:
            raise typer.BadParameter("--trace and --out need one --seed")
        _live_through(range(first, first + seeds), processes or os.cpu_count() or 1)
        return
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets is a part of a history: only with fixed hashes it comes back.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "holdfast.cli", *sys.argv[1:]])
    _replay(seed, trace=trace, out=out)


def verify(
    history: Annotated[Path, typer.Argument(metavar="HISTORY.jsonl", exists=True, dir_okay=False)],
    unfinished: Annotated[
        bool, typer.Option("--unfinished", help="What has to happen may still come.")
    ] = False,
) -> None:
    """Check a history against every promise.  Exit 8: one was broken."""
    from holdfast.verify.checkers import verify as checked
    from holdfast.verify.history import read_history

    try:
        lines = read_history(history)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    found = checked(lines, is_over=not unfinished)
    for violation in found:
        typer.echo(str(violation))
    note(f"{len(lines):,} lines, {len(found):,} violations")
    if found:
        raise typer.Exit(CHECK_FAILED)


def _live_through(seeds: range, processes: int) -> None:
    from holdfast.cli.bulk import progress
    from holdfast.simulation.seeds import Summary, lived

    summary = Summary()
    with progress("seeds", len(seeds)) as advance:
        for verdict in lived(seeds, processes=processes):
            summary.add(verdict)
            advance(1)
            for violation in verdict.violations:
                typer.echo(f"seed {verdict.seed}: {violation}")
            if verdict.violations:
                typer.echo(f"  holdfast sim --seed {verdict.seed} --trace")
    typer.echo(summary.line())
    if summary.failed:
        raise typer.Exit(CHECK_FAILED)


def _replay(seed: int, *, trace: bool, out: Path | None) -> None:
    import msgspec

    from holdfast.simulation.run import end_quietly, run
    from holdfast.verify.history import write_history

    end_quietly()
    result = run(seed, trace=trace)
    if trace:
        typer.echo(str(result.plan))
        for line in result.history:
            typer.echo(msgspec.json.encode(line).decode())
    if out is not None:
        write_history(result.history, out)
    for violation in result.violations:
        typer.echo(str(violation))
    note(f"seed {seed}: {len(result.history):,} lines, {len(result.violations)} violations")
    if result.violations:
        raise typer.Exit(CHECK_FAILED)
