"""`holdfast task`: enqueue, look at, and change tasks."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Annotated, Any

import msgspec
import typer

from holdfast.app import Holdfast
from holdfast.cli.changes import register_changes
from holdfast.cli.find import (
    AppArgument,
    SchemaOption,
    UrlOption,
    find_app,
    find_config,
    found_store,
)
from holdfast.cli.output import Format, JsonOption, OutputOption, chosen, write_one, write_rows
from holdfast.cli.problems import note
from holdfast.cli.rerun import rerun
from holdfast.clock import SystemClock
from holdfast.config import Config, duration
from holdfast.errors import UnknownTask, WrongArguments
from holdfast.payload import PayloadUnreadable, body_text
from holdfast.policy import Unique
from holdfast.store import Filter
from holdfast.task import State, Task, TaskId
from holdfast.tasks import TaskDefinition
from holdfast.telemetry.carrier import without_trace

SCHEMA = "holdfast.task.v1"
COLUMNS = ("id", "state", "kind", "queue", "priority", "attempts", "enqueued_at", "error")
LIMIT_MAX = 10_000

commands = typer.Typer(no_args_is_help=True, help="Enqueue, look at, and change tasks.")
register_changes(commands)
commands.command(epilog="Example: holdfast task rerun 4711")(rerun)

Texts = list[str] | None


@commands.command(epilog="""Example: holdfast task enqueue orders send_email '{"to": "a@b.c"}'""")
def enqueue(
    app: AppArgument,
    kind: Annotated[str, typer.Argument(help="The name of the task in the app.")],
    arguments: Annotated[
        str, typer.Argument(help="JSON: an object of named arguments, or a list; - for stdin.")
    ] = "{}",
    queue: Annotated[str | None, typer.Option(help="Another queue than the task's own.")] = None,
    priority: Annotated[int | None, typer.Option(help="0 goes first, 9 last.")] = None,
    delay: Annotated[str | None, typer.Option(help='Not before then: "30s", "5m", "1h".')] = None,
    fairness_key: Annotated[str | None, typer.Option(help="Whose turn it uses.")] = None,
    ordering_key: Annotated[str | None, typer.Option(help="One after the other.")] = None,
    unique: Annotated[str | None, typer.Option(help="At most one task with this key.")] = None,
    unique_period: Annotated[str | None, typer.Option(help="For how long, such as 1h.")] = None,
    external_id: Annotated[str | None, typer.Option(help="Your own id of the task.")] = None,
    output: OutputOption = Format.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Add a task.  When the command returns 0, the task is durable."""
    found = find_app(app)
    handler = found.registry.require(kind)
    if queue is not None:
        found.registry.require_queue(queue)
    positional, named = arguments_of(arguments)
    options = {
        "queue": queue,
        "priority": priority,
        "delay": None if delay is None else seconds_of("--delay", delay),
        "fairness_key": fairness_key,
        "ordering_key": ordering_key,
        "unique": _unique(unique, unique_period),
        "external_id": external_id,
    }
    definition: TaskDefinition[..., Any] = TaskDefinition(found, handler)
    row = asyncio.run(_enqueued(found, definition, options, positional, named))
    row |= {"kind": kind, "queue": queue or handler.queue}
    write_one(row, schema="holdfast.enqueued.v1", output=chosen(output, as_json))


@commands.command("list", epilog="Example: holdfast task list --state error --kind send_email")
def list_(
    state: Annotated[Texts, typer.Option(help="Several mean any of them.")] = None,
    kind: Annotated[Texts, typer.Option(help="Several mean any of them.")] = None,
    queue: Annotated[Texts, typer.Option(help="Several mean any of them.")] = None,
    fairness_key: Annotated[Texts, typer.Option(help="Several mean any of them.")] = None,
    stuck: Annotated[
        bool, typer.Option("--stuck", help="Only PROCESSING ones past their deadline.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, max=LIMIT_MAX, help="How many at most.")] = 50,
    after: Annotated[int | None, typer.Option(help="Only ids above this one.")] = None,
    url: UrlOption = None,
    schema: SchemaOption = None,
    output: OutputOption = Format.TABLE,
    as_json: JsonOption = False,
) -> None:
    """List tasks by id, without their payloads."""
    if stuck and state:
        raise typer.BadParameter("--stuck names the state itself: leave --state out")
    wanted = Filter(
        states=[State.PROCESSING] if stuck else [state_of(name) for name in state or ()],
        kinds=kind or (),
        queues=queue or (),
        fairness_keys=fairness_key or (),
        after=None if after is None else TaskId(after),
        limit=limit,
    )
    tasks = asyncio.run(_found(find_config(url, schema), wanted, stuck=stuck))
    next_after = str(tasks[-1].id) if len(tasks) == limit else None
    write_rows(
        [as_row(task) | short_error(task, chosen(output, as_json)) for task in tasks],
        schema=SCHEMA,
        columns=COLUMNS,
        output=chosen(output, as_json),
        around={"next_after": next_after},
    )
    if next_after and not as_json and output is Format.TABLE:
        note(f"there may be more: --after {next_after}")


@commands.command(epilog="Example: holdfast task show 4711")
def show(
    id: Annotated[int, typer.Argument(metavar="ID")],
    payload: Annotated[
        bool, typer.Option("--payload", help="Also payload and result; this is logged.")
    ] = False,
    url: UrlOption = None,
    schema: SchemaOption = None,
    output: OutputOption = Format.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Show everything about one task but its payload and result."""
    (task,) = asyncio.run(_got(find_config(url, schema), TaskId(id)))
    row = as_row(task)
    if payload:
        logging.getLogger("holdfast").warning(
            "the payload of task %d was shown", task.id, extra={"task": task.id}
        )
        note(f"warning: the payload of task {task.id} was shown; this is logged")
        row |= {"payload": _body(task.payload), "result": task.result and _body(task.result)}
    write_one(row, schema=SCHEMA, output=chosen(output, as_json))


def as_row(task: Task) -> dict[str, Any]:
    """A task for people and programs.  Ids are texts: they outgrow what JavaScript counts with."""
    metadata = without_trace(task.metadata)
    return {
        "id": str(task.id),
        "state": task.state.name,
        "version": task.version,
        "kind": task.kind,
        "queue": task.queue,
        "partition": task.partition,
        "priority": task.priority,
        "attempts": task.attempts,
        "deliveries": task.deliveries,
        "enqueued_at": moment(task.enqueued_at),
        "due_at": moment(task.due_at),
        "deadline_at": moment(task.deadline_at),
        "finished_at": moment(task.finished_at),
        "node": task.node,
        "fairness_key": task.fairness_key,
        "ordering_key": task.ordering_key,
        "metadata": msgspec.json.decode(metadata) if metadata else None,
        "error": task.error,
    }


async def _enqueued(
    app: Holdfast,
    definition: TaskDefinition[..., Any],
    options: dict[str, Any],
    positional: list[Any],
    named: dict[str, Any],
) -> dict[str, Any]:
    async with app:
        handle = await definition.options(**options).enqueue(*positional, **named)
    return {"id": str(handle.id), "created": handle.created}


async def _found(config: Config, wanted: Filter, *, stuck: bool) -> list[Task]:
    async with found_store(config) as store:
        if not stuck:
            return await store.find(wanted)
        # For a list this machine's clock is good enough; what happens to them, the store decides.
        now = SystemClock().now()
        found: list[Task] = []
        while len(found) < wanted.limit and (page := await store.find(wanted)):
            found += [task for task in page if task.deadline_at and task.deadline_at < now]
            wanted = replace(wanted, after=page[-1].id)
        return found[: wanted.limit]


async def _got(config: Config, id: TaskId) -> list[Task]:
    async with found_store(config) as store:
        found = await store.get([id])
    if id not in found:
        raise UnknownTask(f"no task has the id {id}; it may have been cleaned away")
    return [found[id]]


def arguments_of(text: str) -> tuple[list[Any], dict[str, Any]]:
    if text == "-":
        text = typer.get_text_stream("stdin").read()
    try:
        value = msgspec.json.decode(text.encode())
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise WrongArguments(f"the arguments are no JSON: {error}") from None
    match value:
        case dict():
            return [], value
        case list():
            return value, {}
    raise WrongArguments("the arguments are an object of named ones, or a list")


def _unique(key: str | None, period: str | None) -> Unique | None:
    if key is None:
        if period is not None:
            raise typer.BadParameter("--unique-period needs --unique")
        return None
    return Unique(key, period=None if period is None else seconds_of("--unique-period", period))


def seconds_of(option: str, text: str) -> float:
    try:
        return duration(text)
    except ValueError as error:
        raise typer.BadParameter(f"{option} is {error}") from None


def state_of(name: str) -> State:
    try:
        return State[name.upper()]
    except KeyError:
        known = ", ".join(state.name.lower() for state in State)
        raise typer.BadParameter(f"there is no state {name!r}; known: {known}") from None


def _body(envelope: bytes) -> Any:
    try:
        return msgspec.json.decode(body_text(envelope))
    except (PayloadUnreadable, msgspec.DecodeError, RecursionError) as error:
        return f"(unreadable: {error})"


def short_error(task: Task, output: Format) -> dict[str, Any]:
    """In a table an error is its last line, which says most; `show` has all of it."""
    if output is not Format.TABLE or not task.error:
        return {}
    return {"error": task.error.strip().splitlines()[-1]}


def moment(at: Any) -> str | None:
    return None if at is None else at.isoformat(timespec="milliseconds")
