"""What people may change about tasks: resume, reschedule, cancel, fail.

Each task is answered on its own: OK, NOT_FOUND, NOT_ALLOWED (its state forbids it) or FAILED (it
has moved on from the version named).  The exit code is that of the worst answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from holdfast.cli.bulk import BATCH_MAX, Wish, change_all
from holdfast.cli.find import SchemaOption, UrlOption, find_config, found_runtime
from holdfast.cli.output import Format, JsonOption, OutputOption, chosen, write_rows
from holdfast.cli.problems import ANSWERS, EXIT_CODES, Problem, note, show_problem
from holdfast.config import Config, duration
from holdfast.node.compose import Runtime
from holdfast.store import Answer, Change, Filter
from holdfast.task import Event, State, TaskId

Ids = Annotated[list[int] | None, typer.Argument(metavar="ID…")]
VersionOption = Annotated[
    int | None, typer.Option("--version", help="Only if the task is at this version.")
]
NOT_BEGUN = (State.WAITING, State.SUBMITTED)
Answers = list[tuple[TaskId, Answer]]


def register_changes(commands: typer.Typer) -> None:
    commands.command(epilog="Example: holdfast task resume --kind send_email --all")(resume)
    commands.command(epilog="Example: holdfast task reschedule 4711 --delay 10m")(reschedule)
    commands.command(epilog="Example: holdfast task cancel --kind digest --dry-run")(cancel)
    commands.command(epilog="Example: holdfast task fail 4711")(fail)


def resume(
    ids: Ids = None,
    kind: Annotated[
        list[str] | None, typer.Option("--kind", help="With --all: of these kinds.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All tasks in ERROR of --kind.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Also a PROCESSING task.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
    version: VersionOption = None,
    url: UrlOption = None,
    schema: SchemaOption = None,
    output: OutputOption = Format.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Submit tasks again: those named, or all of a kind that are parked in ERROR."""
    if every == bool(ids) or every != bool(kind):
        raise typer.BadParameter("name tasks by their ids, or all of a kind: --kind K --all")
    config = find_config(url, schema)
    if every:
        answers = asyncio.run(_resumed_all(config, kind or [], dry_run=dry_run))
        note(f"{'would resume' if dry_run else 'resumed'} {len(answers):,} tasks in ERROR")
        if dry_run:
            return
    else:
        wishes = _wishes(ids, Event.RESUMED, version, force=force)
        answers = asyncio.run(_changed(config, wishes))
    write_answers(answers, version, chosen(output, as_json))


def reschedule(
    ids: Ids = None,
    delay: Annotated[str, typer.Option(help='Not before then: "30s", "5m", "1h".')] = "0s",
    version: VersionOption = None,
    url: UrlOption = None,
    schema: SchemaOption = None,
    output: OutputOption = Format.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Let tasks wait for a time from now."""
    try:
        delay_s = duration(delay)
    except ValueError as error:
        raise typer.BadParameter(f"--delay is {error}") from None
    wishes = _wishes(ids, Event.RESCHEDULED, version, delay_s=delay_s)
    _carry_out(wishes, version, find_config(url, schema), chosen(output, as_json))


def cancel(
    ids: Ids = None,
    kind: Annotated[list[str] | None, typer.Option("--kind", help="All of these kinds.")] = None,
    queue: Annotated[list[str] | None, typer.Option("--queue", help="All of these queues.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do it: many tasks at once.")] = False,
    reason: Annotated[str | None, typer.Option("--reason", help="Kept with the tasks.")] = None,
    version: VersionOption = None,
    url: UrlOption = None,
    schema: SchemaOption = None,
    output: OutputOption = Format.TABLE,
    as_json: JsonOption = False,
) -> None:
    """End tasks as CANCELLED: those named, or all of a kind or queue that have not begun.

    A running attempt is asked to stop if its task is named by its id; otherwise it is left alone.
    Without --yes, many at once are only counted.
    """
    if bool(ids) == bool(kind or queue):
        raise typer.BadParameter("name tasks by their ids, or many with --kind or --queue")
    config, form = find_config(url, schema), chosen(output, as_json)
    if ids:
        if dry_run:
            raise typer.BadParameter("--dry-run counts many: leave it out for tasks named by id")
        _carry_out(_wishes(ids, Event.CANCELLED, version, error=reason), version, config, form)
        return
    if version is not None:
        raise typer.BadParameter("--version is the version of one task: name its id")
    change_all(
        config,
        Filter(states=NOT_BEGUN, kinds=kind or (), queues=queue or ()),
        Wish(Event.CANCELLED, "cancel", "cancelled", reason),
        dry_run=dry_run or not yes,
        output=form,
    )


def fail(
    ids: Ids = None,
    reason: Annotated[str | None, typer.Option(help="Kept with the task.")] = None,
    version: VersionOption = None,
    url: UrlOption = None,
    schema: SchemaOption = None,
    output: OutputOption = Format.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Give tasks up: they end as FAILED, on purpose."""
    wishes = _wishes(ids, Event.GIVEN_UP, version, error=reason)
    _carry_out(wishes, version, find_config(url, schema), chosen(output, as_json))


def _wishes(
    ids: Sequence[int] | None, event: Event, version: int | None, **more: Any
) -> list[Change]:
    if not ids:
        raise typer.BadParameter("name at least one task by its id")
    if version is not None and len(ids) > 1:
        raise typer.BadParameter("--version is the version of one task: name one id")
    return [Change(TaskId(id), event, version, **more) for id in ids]


def _carry_out(
    wishes: Sequence[Change], version: int | None, config: Config, output: Format
) -> None:
    write_answers(asyncio.run(_changed(config, wishes)), version, output)


async def _changed(config: Config, wishes: Sequence[Change]) -> Answers:
    async with found_runtime(config) as runtime:
        return await _change(runtime, wishes)


async def _change(runtime: Runtime, wishes: Sequence[Change]) -> Answers:
    changed = await runtime.client.change(wishes)
    return [(wish.id, done.answer) for wish, done in zip(wishes, changed, strict=True)]


async def _resumed_all(config: Config, kinds: Sequence[str], *, dry_run: bool) -> Answers:
    """Page by page, each task at the version that was listed: what moved on meanwhile is left."""
    answers: Answers = []
    after: TaskId | None = None
    async with found_runtime(config) as runtime:
        while page := await runtime.store.find(
            Filter(states=[State.ERROR], kinds=kinds, after=after, limit=BATCH_MAX)
        ):
            after = page[-1].id
            if dry_run:
                answers += [(task.id, Answer.OK) for task in page]
                continue
            wishes = [Change(task.id, Event.RESUMED, task.version) for task in page]
            answers += await _change(runtime, wishes)
    return answers


def write_answers(answers: Answers, version: int | None, output: Format) -> None:
    write_rows(
        [{"id": str(id), "answer": answer.value} for id, answer in answers],
        schema="holdfast.change.v1",
        columns=("id", "answer"),
        output=output,
    )
    exit_code = max((EXIT_CODES[answer] for _, answer in answers), default=0)
    for id, answer in answers:
        if EXIT_CODES[answer] == exit_code and answer is not Answer.OK:
            show_problem(_problem(id, answer, version, exit_code))
            raise typer.Exit(exit_code)


def _problem(id: TaskId, answer: Answer, version: int | None, exit_code: int) -> Problem:
    what = {
        Answer.NOT_FOUND: f"there is no task {id}",
        Answer.NOT_ALLOWED: f"task {id} may not be changed in this way",
        Answer.FAILED: f"task {id} has moved on from version {version}",
    }[answer]
    known = ANSWERS[answer]
    advice = known.advice or "look for it with `holdfast task list`"
    return Problem(known.code, what, known.why, advice, exit_code)
