"""`holdfast schedule`: what fires when, for all nodes, while they run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar, cast

import typer

from holdfast.app import Holdfast
from holdfast.cli.find import (
    AppArgument,
    SchemaOption,
    UrlOption,
    find_app,
    find_config,
    found_runtime,
)
from holdfast.cli.output import Format, JsonOption, OutputOption, chosen, write_one, write_rows
from holdfast.cli.problems import EXIT_CODES, Problem, note, show_problem
from holdfast.cli.task import arguments_of, moment, seconds_of
from holdfast.clock import SystemClock
from holdfast.config import Config
from holdfast.schedule import Schedule
from holdfast.schedules import Schedules
from holdfast.store import Answer
from holdfast.tasks import TaskDefinition
from holdfast.telemetry.events import Events
from holdfast.timing import At, CatchUp, Cron, Every, Timing, slots_between

T = TypeVar("T")

SCHEMA = "holdfast.schedule.v1"
COLUMNS = ("name", "when", "state", "next_at", "last_at", "missed", "kind", "source")
SLOTS_MAX = 1_000
END = datetime.max.replace(tzinfo=UTC)

commands = typer.Typer(no_args_is_help=True, help="What fires when.")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The schedule's name.")]
NamesArgument = Annotated[list[str], typer.Argument(metavar="NAME…", help="The schedules' names.")]


@commands.command("list", epilog="Example: holdfast schedule list")
def list_(
    url: UrlOption = None,
    schema: SchemaOption = None,
    output: OutputOption = Format.TABLE,
    as_json: JsonOption = False,
) -> None:
    """List all schedules, with their next and last slots."""
    found = _with(find_config(url, schema), lambda schedules: schedules.list())
    write_rows(
        [_row(one) for one in found],
        schema=SCHEMA,
        columns=COLUMNS,
        output=chosen(output, as_json),
    )


@commands.command(epilog="Example: holdfast schedule show 'nightly report'")
def show(
    name: NameArgument,
    url: UrlOption = None,
    schema: SchemaOption = None,
    output: OutputOption = Format.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Show everything about one schedule but its payload."""
    found = _with(find_config(url, schema), lambda schedules: schedules.get(name))
    if found is None:
        raise _missing(name)
    write_one(_row(found), schema=SCHEMA, output=chosen(output, as_json))


@commands.command(
    epilog="Example: holdfast schedule add orders nightly report '{}' --cron '0 3 * * *' "
    "--tz Europe/Berlin"
)
def add(
    app: AppArgument,
    name: NameArgument,
    kind: Annotated[str, typer.Argument(help="The name of the task in the app.")],
    arguments: Annotated[
        str, typer.Argument(help="JSON: an object of named arguments, or a list; - for stdin.")
    ] = "{}",
    cron: Annotated[str | None, typer.Option(help="A line of five fields, or six.")] = None,
    tz: Annotated[str, typer.Option(help="The time zone of --cron.")] = "UTC",
    every: Annotated[str | None, typer.Option(help='An interval: "30s", "5m", "1h".')] = None,
    at: Annotated[str | None, typer.Option(help="One time, such as 2030-01-01T12:00Z.")] = None,
    catch_up: Annotated[
        str, typer.Option(help="Of missed slots, fire: one (the latest), all, none.")
    ] = "one",
    queue: Annotated[str | None, typer.Option(help="Another queue than the task's own.")] = None,
    priority: Annotated[int | None, typer.Option(help="0 goes first, 9 last.")] = None,
    fairness_key: Annotated[str | None, typer.Option(help="Whose turn it uses.")] = None,
    ordering_key: Annotated[str | None, typer.Option(help="One after the other.")] = None,
    output: OutputOption = Format.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Add a schedule, or replace the one of this name."""
    timing = _timing(cron, tz, every, at, cast(CatchUp, catch_up))
    found = find_app(app)
    definition: TaskDefinition[..., Any] = TaskDefinition(found, found.registry.require(kind))
    options = {
        "queue": queue,
        "priority": priority,
        "fairness_key": fairness_key,
        "ordering_key": ordering_key,
    }
    positional, named = arguments_of(arguments)
    enqueuer = definition.options(**cast(Any, options))
    schedule = asyncio.run(
        _closed(found, lambda: enqueuer.put_schedule(name, timing, *positional, **named))
    )
    write_one(_row(schedule), schema=SCHEMA, output=chosen(output, as_json))


@commands.command(epilog="Example: holdfast schedule pause 'nightly report'")
def pause(names: NamesArgument, url: UrlOption = None, schema: SchemaOption = None) -> None:
    """Fire no more until it is resumed; what was fired goes on."""
    _each(names, find_config(url, schema), "pause", "is paused; `schedule resume` lets it go on")


@commands.command(epilog="Example: holdfast schedule resume 'nightly report'")
def resume(names: NamesArgument, url: UrlOption = None, schema: SchemaOption = None) -> None:
    """Go on with the next slot, also after an end; slots that passed do not fire."""
    _each(names, find_config(url, schema), "resume", "goes on with its next slot")


@commands.command(epilog="Example: holdfast schedule drop 'nightly report'")
def drop(names: NamesArgument, url: UrlOption = None, schema: SchemaOption = None) -> None:
    """Forget schedules; what they fired stays.  Code that names one makes it anew."""
    _each(names, find_config(url, schema), "drop", "is gone")


@commands.command(epilog="Example: holdfast schedule run 'nightly report'")
def run(
    name: NameArgument,
    url: UrlOption = None,
    schema: SchemaOption = None,
    output: OutputOption = Format.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Add one task of the schedule now, besides its slots."""
    id = _with(find_config(url, schema), lambda schedules: schedules.run_now(name))
    if id is None:
        raise _missing(name)
    row = {"id": str(id), "created": True}
    write_one(row, schema="holdfast.enqueued.v1", output=chosen(output, as_json))


@commands.command(epilog="Example: holdfast schedule next '0 2 * * *' --tz Europe/Berlin -n 5")
def next(
    line: Annotated[str, typer.Argument(metavar="LINE", help="A cron line, in quotes.")],
    tz: Annotated[str, typer.Option(help="Its time zone.")] = "UTC",
    count: Annotated[int, typer.Option("-n", "--count", min=1, max=SLOTS_MAX)] = 5,
    after: Annotated[
        str | None, typer.Option(help="Slots after this time, such as 2030-03-30T00:00Z.")
    ] = None,
    output: OutputOption = Format.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Print the next slots of a cron line, by the clocks of its time zone and in UTC."""
    timing = Cron(line, tz)
    start = SystemClock().now() if after is None else _time("--after", after)
    slots = slots_between(timing, start, END, limit=count)
    write_rows(
        [{"local": timing.local(slot).isoformat(), "at": slot.isoformat()} for slot in slots],
        schema="holdfast.slot.v1",
        columns=("local", "at"),
        output=chosen(output, as_json),
        around={"when": timing.words()},
    )
    if chosen(output, as_json) is Format.TABLE:
        note(timing.words())


def _row(schedule: Schedule) -> dict[str, Any]:
    state = "paused" if schedule.is_paused else "ended" if schedule.is_ended else "on"
    return {
        "name": schedule.name,
        "when": schedule.timing.words(),
        "state": state,
        "next_at": None if schedule.is_paused else moment(schedule.next_at),
        "last_at": moment(schedule.last_at),
        "missed": schedule.missed,
        "kind": schedule.kind,
        "queue": schedule.queue,
        "priority": schedule.priority,
        "fairness_key": schedule.fairness_key,
        "ordering_key": schedule.ordering_key,
        "source": schedule.source,
        "version": schedule.version,
        "timing": schedule.timing.facts(),
    }


def _timing(
    cron: str | None, tz: str, every: str | None, at: str | None, catch_up: CatchUp
) -> Timing:
    if sum(value is not None for value in (cron, every, at)) != 1:
        raise typer.BadParameter("say when by one of --cron, --every and --at")
    if cron is not None:
        return Cron(cron, tz, catch_up=catch_up)
    if every is not None:
        return Every(seconds_of("--every", every), catch_up=catch_up)
    return At(_time("--at", at or ""), catch_up=catch_up)


def _time(option: str, text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{option} is no time: {text!r}") from None
    if found.tzinfo is None:
        raise typer.BadParameter(f"{option} needs a time zone, such as {text}Z")
    return found


def _with(config: Config, work: Callable[[Schedules], Awaitable[T]]) -> T:
    async def run() -> T:
        async with found_runtime(config) as runtime:

            async def store() -> Any:
                return runtime.store

            async def client() -> Any:
                return runtime.client

            return await work(Schedules(store, client, events=Events()))

    return asyncio.run(run())


async def _closed(app: Holdfast, work: Callable[[], Awaitable[T]]) -> T:
    async with app:
        return await work()


def _each(names: Sequence[str], config: Config, verb: str, done: str) -> None:
    """Change each of them; the exit code is that of the worst answer."""

    async def work(schedules: Schedules) -> dict[str, Answer]:
        return {name: await getattr(schedules, verb)(name) for name in names}

    answers = _with(config, work)
    for name, answer in answers.items():
        if answer is Answer.OK:
            note(f"schedule {name} {done}")
        elif answer is Answer.NOT_FOUND:
            _missing(name)
        else:
            why = "it has no slot ahead; nothing was changed"
            advice = "put it again with another time"
            show_problem(Problem("HF2103", f"schedule {name!r} has ended", why, advice, 4))
    code = max(EXIT_CODES[answer] for answer in answers.values())
    if code:
        raise typer.Exit(code)


def _missing(name: str) -> typer.Exit:
    """Say that there is no such schedule; the exit is the answer."""
    why, advice = "no schedule has this name", "look for it with `holdfast schedule list`"
    show_problem(Problem("HF2102", f"there is no schedule {name!r}", why, advice, 3))
    return typer.Exit(3)
