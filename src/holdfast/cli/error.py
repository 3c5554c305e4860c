"""`holdfast error`: the tasks that wait for a person, alone, in groups, or all at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from holdfast.cli.bulk import BATCH_MAX, Wish, change_all
from holdfast.cli.changes import Ids, write_answers
from holdfast.cli.find import SchemaOption, UrlOption, find_config, found_runtime, found_store
from holdfast.cli.output import Format, JsonOption, OutputOption, chosen, write_rows
from holdfast.cli.problems import note
from holdfast.cli.task import LIMIT_MAX, SCHEMA, Texts, as_row, moment, short_error
from holdfast.config import Config
from holdfast.fingerprint import ErrorGroup, grouped
from holdfast.store import Answer, Filter
from holdfast.task import Event, State, Task, TaskId

GROUPED_MAX = 100_000  # tasks that are read to make groups
COLUMNS = ("id", "kind", "queue", "attempts", "enqueued_at", "error")
GROUP_COLUMNS = ("count", "kind", "error", "first_at", "last_at", "sample")

commands = typer.Typer(no_args_is_help=True, help="Look at tasks in ERROR, and decide about them.")

KindOption = Annotated[Texts, typer.Option("--kind", help="Of this kind; may be repeated.")]
QueueOption = Annotated[Texts, typer.Option("--queue", help="Of this queue; may be repeated.")]
AllOption = Annotated[bool, typer.Option("--all", help="Every task in ERROR.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only count.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do it: many tasks at once.")]
ReasonOption = Annotated[str | None, typer.Option("--reason", help="Kept with the tasks.")]


@commands.command("list", epilog="Example: holdfast error list --group")
def list_(
    kind: KindOption = None,
    queue: QueueOption = None,
    group: Annotated[
        bool, typer.Option("--group", help="Those that look alike as one line, the most first.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, max=LIMIT_MAX, help="How many at most.")] = 50,
    after: Annotated[int | None, typer.Option(help="Only ids above this one.")] = None,
    url: UrlOption = None,
    schema: SchemaOption = None,
    output: OutputOption = Format.TABLE,
    as_json: JsonOption = False,
) -> None:
    """List the tasks in ERROR: what failed, and with which last line."""
    form = chosen(output, as_json)
    wanted = _filter(kind, queue, limit, after)
    config = find_config(url, schema)
    if group:
        if after is not None:
            raise typer.BadParameter("--group counts all of them: leave --after out")
        _write_groups(asyncio.run(_groups(config, wanted))[:limit], form)
        return
    tasks = asyncio.run(_found(config, wanted))
    next_after = str(tasks[-1].id) if len(tasks) == limit else None
    write_rows(
        [as_row(task) | short_error(task, form) for task in tasks],
        schema=SCHEMA,
        columns=COLUMNS,
        output=form,
        around={"next_after": next_after},
        right=("attempts",),
    )
    if next_after and form is Format.TABLE:
        note(f"there may be more: --after {next_after}")


@commands.command(epilog="Example: holdfast error resume --kind send_email --yes")
def resume(
    ids: Ids = None,
    kind: KindOption = None,
    queue: QueueOption = None,
    every: AllOption = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    reason: ReasonOption = None,
    url: UrlOption = None,
    schema: SchemaOption = None,
    output: OutputOption = Format.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Submit tasks in ERROR again: those named, or all of a kind or queue.

    Without --yes, many at once are only counted.
    """
    wish = Wish(Event.RESUMED, "resume", "resumed", reason)
    named = _named(ids, kind, queue, every=every)
    _decide(find_config(url, schema), wish, named, dry_run or not yes, chosen(output, as_json))


@commands.command(epilog="Example: holdfast error give-up 4711 --reason 'the account is closed'")
def give_up(
    ids: Ids = None,
    kind: KindOption = None,
    queue: QueueOption = None,
    every: AllOption = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    reason: ReasonOption = None,
    url: UrlOption = None,
    schema: SchemaOption = None,
    output: OutputOption = Format.TABLE,
    as_json: JsonOption = False,
) -> None:
    """End tasks in ERROR as FAILED, on purpose: those named, or all of a kind or queue.

    Without --yes, many at once are only counted.
    """
    wish = Wish(Event.GIVEN_UP, "give up", "given up", reason)
    named = _named(ids, kind, queue, every=every)
    _decide(find_config(url, schema), wish, named, dry_run or not yes, chosen(output, as_json))


def _named(
    ids: Sequence[int] | None, kind: Texts, queue: Texts, *, every: bool
) -> Sequence[int] | Filter:
    """The ids, or the filter; exactly one way of naming tasks is used."""
    if bool(ids) == bool(every or kind or queue):
        raise typer.BadParameter("name tasks by their ids, or with --kind, --queue or --all")
    if every and (kind or queue):
        raise typer.BadParameter("--all means every task in ERROR: leave --kind and --queue out")
    return ids or _filter(kind, queue, BATCH_MAX, None)


def _filter(kind: Texts, queue: Texts, limit: int, after: int | None) -> Filter:
    return Filter(
        states=[State.ERROR],
        kinds=kind or (),
        queues=queue or (),
        limit=limit,
        after=None if after is None else TaskId(after),
    )


def _decide(
    config: Config,
    wish: Wish,
    named: Sequence[int] | Filter,
    dry_run: bool,
    output: Format,
) -> None:
    if isinstance(named, Filter):
        change_all(config, named, wish, dry_run=dry_run, output=output)
    else:
        answers = asyncio.run(_changed(config, wish, [TaskId(id) for id in named]))
        write_answers(answers, None, output)


async def _changed(
    config: Config, wish: Wish, ids: Sequence[TaskId]
) -> list[tuple[TaskId, Answer]]:
    """Change those that are in ERROR, each as it was read."""
    async with found_runtime(config) as runtime:
        found = await runtime.store.get(ids)
        answers = {id: Answer.NOT_ALLOWED if id in found else Answer.NOT_FOUND for id in ids}
        parked = [task for task in found.values() if task.state is State.ERROR]
        changed = await runtime.client.change([wish.change(task) for task in parked])
        answers |= {task.id: one.answer for task, one in zip(parked, changed, strict=True)}
    return list(answers.items())


async def _found(config: Config, wanted: Filter) -> list[Task]:
    async with found_store(config) as store:
        return await store.find(wanted)


async def _groups(config: Config, wanted: Filter) -> list[ErrorGroup]:
    read: list[Task] = []
    wanted = replace(wanted, limit=BATCH_MAX)
    async with found_store(config) as store:
        while len(read) < GROUPED_MAX and (page := await store.find(wanted)):
            # Payloads may be large, and groups do not need them.
            read += [replace(task, payload=b"", result=None) for task in page]
            wanted = replace(wanted, after=page[-1].id)
    if len(read) >= GROUPED_MAX:
        note(f"these are the first {GROUPED_MAX:,} tasks in ERROR; there are more")
    return grouped(read)


def _write_groups(groups: Sequence[ErrorGroup], output: Format) -> None:
    is_table = output is Format.TABLE
    shown = _short_moment if is_table else moment
    rows: list[dict[str, Any]] = [
        {
            "count": f"{one.count:,}" if is_table else one.count,
            "kind": one.kind,
            "error": one.error,
            "first_at": shown(one.first_at),
            "last_at": shown(one.last_at),
            "sample": str(one.sample),
        }
        for one in groups
    ]
    write_rows(
        rows,
        schema="holdfast.error_group.v1",
        columns=GROUP_COLUMNS,
        output=output,
        right=("count",),
    )


def _short_moment(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"
