"""`holdfast queue`: what waits; limits, pauses and weights, for all nodes, while they run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeVar

import typer

from holdfast.cli.find import SchemaOption, UrlOption, find_config, found_store
from holdfast.cli.output import Format, JsonOption, OutputOption, chosen, write_rows
from holdfast.cli.overview import QueueArgument, register_overview
from holdfast.cli.problems import note
from holdfast.config import Config
from holdfast.errors import ConfigurationError
from holdfast.limit import BURST_S, FAIRNESS, Rules
from holdfast.queues import Queue, is_pause
from holdfast.store import Filter, Store
from holdfast.task import FINAL, State

T = TypeVar("T")

commands = typer.Typer(no_args_is_help=True, help="What waits in queues; limits and pauses.")
register_overview(commands)

KindOption = Annotated[str | None, typer.Option("--kind", help="Only tasks of this kind.")]
KeyOption = Annotated[str | None, typer.Option("--key", help="Only tasks of this fairness key.")]
PartitionOption = Annotated[
    int | None, typer.Option("--partition", help="Only this partition, as a whole.")
]
COLUMNS = ("rule", "name", "value", "kind", "key", "scope")


@commands.command(epilog="Example: holdfast queue rules billing")
def rules(
    queue: QueueArgument,
    url: UrlOption = None,
    schema: SchemaOption = None,
    output: OutputOption = Format.TABLE,
    as_json: JsonOption = False,
) -> None:
    """List the limits, pauses and weights that are set."""
    found = _with(find_config(url, schema), queue, lambda one: one.rules())
    write_rows(
        _rows(found),
        schema="holdfast.rule.v1",
        columns=COLUMNS,
        output=chosen(output, as_json),
        around={"queue": queue, "version": found.version},
    )


@commands.command(epilog="Example: holdfast queue limit billing partner --concurrency 3 --key '*'")
def limit(
    queue: QueueArgument,
    name: Annotated[str, typer.Argument(help="The limit's name; setting it again replaces it.")],
    concurrency: Annotated[int | None, typer.Option(help="At most so many at once.")] = None,
    rate: Annotated[float | None, typer.Option(help="At most so many starts a second.")] = None,
    kind: KindOption = None,
    key: Annotated[
        str | None, typer.Option("--key", help="Only this fairness key; '*': each by itself.")
    ] = None,
    burst: Annotated[float, typer.Option(help="A rate's burst, in seconds' worth.")] = BURST_S,
    local: Annotated[bool, typer.Option("--local", help="Each node counts by itself.")] = False,
    drop: Annotated[bool, typer.Option("--drop", help="Take the limit away.")] = False,
    url: UrlOption = None,
    schema: SchemaOption = None,
) -> None:
    """Set a limit over all nodes, or take it away."""
    config = find_config(url, schema)
    if drop:
        if concurrency is not None or rate is not None:
            raise ConfigurationError("--drop takes the limit away: leave out its numbers")
        _with(config, queue, lambda one: one.drop_limit(name))
        note(f"queue {queue} has no limit {name} any more")
        return
    _with(
        config,
        queue,
        lambda one: one.limit(
            name,
            concurrency=concurrency,
            rate=rate,
            kind=kind,
            key=key,
            burst=burst,
            local=local,
        ),
    )
    note(f"limit {name} of queue {queue} is set")


@commands.command(epilog="Example: holdfast queue pause billing --key acme")
def pause(
    queue: QueueArgument,
    kind: KindOption = None,
    key: KeyOption = None,
    partition: PartitionOption = None,
    url: UrlOption = None,
    schema: SchemaOption = None,
) -> None:
    """Start nothing more of a queue, a kind, a key or a partition; what runs goes on."""
    config = find_config(url, schema)
    _with(config, queue, lambda one: one.pause(kind=kind, key=key, partition=partition))
    what = _what(queue=queue, kind=kind, key=key, partition=partition)
    note(f"{what} is paused; `holdfast queue resume` lets it go on")


@commands.command(epilog="Example: holdfast queue resume billing --key acme")
def resume(
    queue: QueueArgument,
    kind: KindOption = None,
    key: KeyOption = None,
    partition: PartitionOption = None,
    url: UrlOption = None,
    schema: SchemaOption = None,
) -> None:
    """Let go on what was paused with the same words."""
    config = find_config(url, schema)
    _with(config, queue, lambda one: one.resume(kind=kind, key=key, partition=partition))
    note(f"{_what(queue=queue, kind=kind, key=key, partition=partition)} goes on")


@commands.command(epilog="Example: holdfast queue weight billing acme 5")
def weight(
    queue: QueueArgument,
    key: Annotated[str, typer.Argument(help="The fairness key.")],
    value: Annotated[
        float | None, typer.Argument(help="From 0.001 to 1000; 1 is everybody's.")
    ] = None,
    drop: Annotated[bool, typer.Option("--drop", help="Back to the weight of the tasks.")] = False,
    url: UrlOption = None,
    schema: SchemaOption = None,
) -> None:
    """Set the share of a fairness key, whatever the tasks say."""
    if drop == (value is not None):
        raise ConfigurationError("name either a weight or --drop")
    _with(find_config(url, schema), queue, lambda one: one.weight(key, value))
    note(f"the weight of {key} in queue {queue} is {'that of its tasks' if drop else value}")


@commands.command(epilog="Example: holdfast queue fairness billing cost")
def fairness(
    queue: QueueArgument,
    mode: Annotated[str, typer.Argument(metavar="MODE", help="count, cost or off.")],
    url: UrlOption = None,
    schema: SchemaOption = None,
) -> None:
    """Say how fairness keys are charged: by count, by run time, or not at all."""
    if mode not in FAIRNESS:
        raise ConfigurationError(f"MODE is one of {', '.join(FAIRNESS)}, not {mode!r}")
    _with(find_config(url, schema), queue, lambda one: one.fairness(mode))
    note(f"keys of queue {queue} are charged by: {mode}")


def _with(config: Config, name: str, work: Callable[[Queue], Awaitable[T]]) -> T:
    async def run() -> T:
        async with found_store(config) as store:

            async def opened() -> Any:
                return store

            answer = await work(Queue(name, opened))
            if not await _is_known(store, name):
                note(f"no node serves queue {name}, and no task waits in it: is its name right?")
            return answer

    return asyncio.run(run())


async def _is_known(store: Store, queue: str) -> bool:
    if any(queue in member.queues for member in await store.members()):
        return True
    states = [state for state in State if state not in FINAL]  # the archive may be large
    return bool(await store.find(Filter(states=states, queues=[queue], limit=1)))


def _rows(found: Rules) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for one in found.limits:
        value = f"{one.concurrency} at once" if one.rate is None else f"{one.rate:g} a second"
        rows.append(
            {
                "rule": "pause" if is_pause(one) else "limit",
                "name": one.name,
                "value": "nothing starts" if one.pauses else value,
                "kind": one.kind,
                "key": one.key,
                "scope": "each node" if one.local else "all nodes",
            }
        )
    for key, number in sorted(found.weights.items()):
        rows.append({"rule": "weight", "name": key, "value": number, "key": key})
    return rows


def _what(**named: object) -> str:
    return ", ".join(f"{word} {name}" for word, name in named.items() if name is not None)
