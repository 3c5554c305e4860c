"""`holdfast doctor`: checks, each with its fix."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from random import Random
from typing import Annotated

import typer

from holdfast.cli.find import SchemaOption, UrlOption, find_app, find_config
from holdfast.cli.output import Format, JsonOption, OutputOption, chosen, write_rows
from holdfast.cli.problems import CHECK_FAILED, cleaned, has_colour, note
from holdfast.clock import SystemClock
from holdfast.config import Config
from holdfast.doctor.examine import examine
from holdfast.doctor.finding import Finding, Thresholds, Verdict, fail, ok
from holdfast.doctor.process import check_process
from holdfast.errors import HoldfastError
from holdfast.node.compose import make_store
from holdfast.words import counted

SCHEMA = "holdfast.check.v1"
COLOURS = {Verdict.OK: "green", Verdict.WARN: "yellow", Verdict.FAIL: "red"}


def doctor(
    app: Annotated[
        str | None,
        typer.Argument(metavar="[APP]", help="Also import this app, and use its address."),
    ] = None,
    url: UrlOption = None,
    schema: SchemaOption = None,
    output: OutputOption = Format.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Check everything that Holdfast rests on; exit 8 when a check fails.  Changes no task."""
    findings = [
        one._replace(what=cleaned(one.what), fix=cleaned(one.fix))
        for one in _findings(app, url, schema)
    ]
    failures = sum(one.verdict is Verdict.FAIL for one in findings)
    warnings = sum(one.verdict is Verdict.WARN for one in findings)
    if chosen(output, as_json) is Format.TABLE:
        _show(findings)
    else:
        write_rows(
            [one._asdict() for one in findings],
            schema=SCHEMA,
            columns=Finding._fields,
            output=chosen(output, as_json),
            around={"failures": failures, "warnings": warnings},
        )
    sums = f"{counted(failures, 'failure')}, {counted(warnings, 'warning')}"
    if failures:
        note(f"exit {CHECK_FAILED}: {sums}")
        raise typer.Exit(CHECK_FAILED)
    note(sums)


def _findings(app: str | None, url: str | None, schema: str | None) -> list[Finding]:
    findings: list[Finding] = []
    try:
        config: Config | None = None
        if app is not None:
            found = find_app(app)
            config = found.config
            kinds = sum(1 for _ in found.registry)
            queues = ", ".join(found.registry.queues) or "no queue yet"
            findings.append(ok("app", f"{app}: {counted(kinds, 'task')} in {queues}"))
        if config is None or url is not None or schema is not None:
            config = find_config(url, schema)
        store = make_store(config.address, clock=SystemClock(), rng=Random())
    except HoldfastError as error:
        name = "app" if app is not None and not findings else "configuration"
        fix = "correct it; `holdfast config show --resolved` tells where each value comes from"
        return [*check_process(Thresholds()), *findings, fail(name, str(error), fix)]
    return findings + asyncio.run(examine(config, store, clock=SystemClock()))


def _show(findings: Sequence[Finding]) -> None:
    width = max(len(one.name) for one in findings)
    has_colours = has_colour(sys.stdout)
    for one in findings:
        word = f"{one.verdict:<4}"
        if has_colours:
            word = typer.style(word, fg=COLOURS[one.verdict])
        typer.echo(f"{word}  {one.name:<{width}}  {one.what}")
        if one.fix:
            typer.echo(f"      {'fix':<{width}}  {one.fix}")
