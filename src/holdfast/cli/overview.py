"""`holdfast queue list`, `drain` and `purge`: what waits in each queue, and who serves it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from difflib import get_close_matches
from typing import Annotated, Any, NamedTuple

import typer

from holdfast.cli.bulk import Wish, change_all, progress
from holdfast.cli.find import SchemaOption, UrlOption, find_config, found_store
from holdfast.cli.output import Format, JsonOption, OutputOption, chosen, write_rows
from holdfast.cli.problems import NOT_DRAINED, end_with, note, warn
from holdfast.cli.task import state_of
from holdfast.cli.words import NOTHING, age, many, tasks
from holdfast.clock import SystemClock
from holdfast.config import Config, duration
from holdfast.errors import UnknownQueue
from holdfast.limit import Rules
from holdfast.queues import is_pause
from holdfast.store import Filter, Store
from holdfast.task import FINAL, Event, State
from holdfast.telemetry.events import QueueSurvey

COUNT_MAX = 10_000
LOOK_S = 0.5
COUNTS = ("submitted", "oldest", "waiting", "processing", "error", "nodes")
COLUMNS = ("queue", *COUNTS, "notes")

QueueArgument = Annotated[str, typer.Argument(metavar="QUEUE", help="The name of the queue.")]


class Overview(NamedTuple):
    """One queue: what waits in it, how many live nodes serve it, and what was set."""

    survey: QueueSurvey
    nodes: int
    notes: list[str]

    @property
    def is_deserted(self) -> bool:
        """Whether tasks wait that nobody will run."""
        return not self.nodes and bool(self.survey.submitted or self.survey.waiting)


def register_overview(commands: typer.Typer) -> None:
    commands.command("list", epilog="Example: holdfast queue list")(list_)
    commands.command(epilog="Example: holdfast queue drain billing --timeout 10m")(drain)
    commands.command(epilog="Example: holdfast queue purge mail --state waiting --yes")(purge)


def list_(
    url: UrlOption = None,
    schema: SchemaOption = None,
    output: OutputOption = Format.TABLE,
    as_json: JsonOption = False,
) -> None:
    """List the queues: what waits, since when, and how many nodes serve them.

    The age is that of the task that may run and waits longest.  Counts stop at 10,000.
    """
    form = chosen(output, as_json)
    found = asyncio.run(_listed(find_config(url, schema)))
    write_rows(
        [as_text(one) if form is Format.TABLE else _as_row(one) for one in found],
        schema="holdfast.queue.v1",
        columns=COLUMNS,
        output=form,
        around={"count_max": COUNT_MAX},
        right=COUNTS,
    )
    for one in found:
        if one.is_deserted:
            warn(f"no node serves queue {one.survey.queue}")


def drain(
    queue: QueueArgument,
    timeout: Annotated[
        str | None, typer.Option(help='Give up after so long: "30s", "10m". Exit 7.')
    ] = None,
    url: UrlOption = None,
    schema: SchemaOption = None,
) -> None:
    """Wait until nothing of the queue is SUBMITTED or PROCESSING.

    Tasks that wait for their time, and those in ERROR, are not waited for.
    """
    try:
        timeout_s = None if timeout is None else duration(timeout)
    except ValueError as error:
        raise typer.BadParameter(f"--timeout is {error}") from None
    left = asyncio.run(_drained(find_config(url, schema), queue, timeout_s))
    if left:
        end_with(NOT_DRAINED, f"queue {queue} still has {tasks(left)} after {timeout}")
    note(f"queue {queue} is drained")


def purge(
    queue: QueueArgument,
    state: Annotated[
        list[str], typer.Option("--state", help="waiting, submitted or error; may be repeated.")
    ],
    kind: Annotated[list[str] | None, typer.Option("--kind", help="Only of this kind.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do it.")] = False,
    reason: Annotated[str | None, typer.Option("--reason", help="Kept with the tasks.")] = None,
    url: UrlOption = None,
    schema: SchemaOption = None,
    output: OutputOption = Format.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Cancel all tasks of a queue that are in these states.  Without --yes they are counted.

    What runs is left alone: cancel it by its id.
    """
    states = [state_of(name) for name in state]
    if wrong := [one.name for one in states if one is State.PROCESSING or one in FINAL]:
        raise typer.BadParameter(
            f"--state is waiting, submitted or error, not {wrong[0].lower()}: "
            "what runs is cancelled by its id, and what has ended stays"
        )
    change_all(
        find_config(url, schema),
        Filter(states=states, queues=[queue], kinds=kind or ()),
        Wish(Event.CANCELLED, "cancel", "cancelled", reason),
        dry_run=dry_run or not yes,
        output=chosen(output, as_json),
    )


async def overviews(store: Store) -> list[Overview]:
    """Every queue, by name."""
    serving = [member.queues for member in await store.members() if member.is_alive]
    return [
        Overview(
            survey,
            sum(survey.queue in queues for queues in serving),
            _notes(survey, await store.rules(survey.queue)),
        )
        for survey in await store.survey(count_max=COUNT_MAX)
    ]


def as_text(one: Overview) -> dict[str, str]:
    """A row for people."""
    found = one.survey
    return {
        "queue": found.queue,
        "submitted": many(found.submitted, COUNT_MAX),
        "oldest": age(found.oldest_age_s) if found.submitted else NOTHING,
        "waiting": many(found.waiting, COUNT_MAX),
        "processing": many(found.processing, COUNT_MAX),
        "error": many(found.error, COUNT_MAX),
        "nodes": many(one.nodes),
        "notes": "; ".join(one.notes),
    }


def _as_row(one: Overview) -> dict[str, Any]:
    return asdict(one.survey) | {"nodes": one.nodes, "notes": one.notes}


def _notes(survey: QueueSurvey, rules: Rules) -> list[str]:
    """What a person should know before wondering about the numbers."""
    pauses = [limit.name.removeprefix("pause").strip() for limit in rules.limits if is_pause(limit)]
    notes = [f"paused: {name}" if name else "paused" for name in sorted(pauses)]
    if limits := len(rules.limits) - len(pauses):
        notes.append("1 limit" if limits == 1 else f"{limits} limits")
    if survey.stuck:
        notes.append(f"{survey.stuck:,} past the deadline")
    return notes


async def _listed(config: Config) -> list[Overview]:
    async with found_store(config) as store:
        return await overviews(store)


async def _drained(config: Config, queue: str, timeout_s: float | None) -> int:
    """Wait; answers how many tasks were left when the time was over."""
    clock = SystemClock()
    until_s = None if timeout_s is None else clock.seconds() + timeout_s
    async with found_store(config) as store:
        found = await overviews(store)
        left = before = _left(found, queue)
        one = next(each for each in found if each.survey.queue == queue)
        if before and one.is_deserted:
            warn(f"no node serves queue {queue}")
        if before and "paused" in one.notes:
            warn(f"queue {queue} is paused: `holdfast queue resume {queue}` lets it go on")
        with progress(f"draining {queue}", before) as advance:
            while left and (until_s is None or clock.seconds() < until_s):
                await asyncio.sleep(LOOK_S)
                now = _left(await overviews(store), queue)
                advance(left - now)
                left = now
    return left


def _left(found: Sequence[Overview], queue: str) -> int:
    known = {one.survey.queue: one.survey for one in found}
    if queue not in known:
        near = get_close_matches(queue, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known) or 'none'}"
        raise UnknownQueue(f"no task waits in queue {queue!r} and no node served it; {hint}")
    return known[queue].submitted + known[queue].processing
