"""`holdfast worker`: a node, or several in processes of their own."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Annotated

import typer

from holdfast import loops
from holdfast.app import Holdfast
from holdfast.cli.find import AppArgument, find_app
from holdfast.cli.fleet import supervise
from holdfast.cli.metrics import LOOPBACK, metrics_place, metrics_served
from holdfast.cli.problems import INTERRUPTED, has_colour
from holdfast.errors import ConfigurationError
from holdfast.telemetry.logs import LOGGER, HumanFormatter, JsonFormatter
from holdfast.worker.memory import collect_seldom


def worker(
    app: AppArgument,
    queue: Annotated[
        list[str] | None, typer.Option(help="Serve this queue; may be repeated. Else: all.")
    ] = None,
    processes: Annotated[int, typer.Option(min=1, max=256, help="How many nodes.")] = 1,
    verbose: Annotated[
        bool | None,
        typer.Option("--verbose/--quiet", help="A line for each task; on at a terminal."),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65535,
            help="Serve metrics for Prometheus at this port; of several nodes, the second takes "
            "the next port, and so on.",
        ),
    ] = None,
    metrics_host: Annotated[str, typer.Option(help="The address to serve them at.")] = LOOPBACK,
    insecure: Annotated[
        bool,
        typer.Option("--insecure", help="Serve them to other machines too, without a password."),
    ] = False,
    until_stdin_ends: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Run tasks until SIGTERM or Ctrl-C; running attempts finish.  A second signal ends at once.

    Safe to kill at any moment: what it was running goes on elsewhere when its lease has ended.
    """
    log_to_stderr(verbose)
    found = find_app(app)
    queues = served_queues(found, queue)
    loops.check(found.config.loop)
    place = metrics_place(metrics_host, metrics_port, nodes=processes, insecure=insecure)
    if processes > 1:
        command = [sys.executable, "-m", "holdfast.cli", "worker", app, "--until-stdin-ends"]
        for name in queues:
            command += ["--queue", name]
        command += ["--verbose"] if LOGGER.isEnabledFor(logging.DEBUG) else ["--quiet"]
        raise typer.Exit(asyncio.run(supervise(found, command, processes, place)))
    collect_seldom()
    with metrics_served(found, place):
        serving = serve([(found, queues)], until_stdin_ends=until_stdin_ends)
        loops.run(serving, loop=found.config.loop)


def log_to_stderr(verbose: bool | None) -> None:
    """Lines for a person on a terminal, JSON otherwise."""
    is_terminal = sys.stderr.isatty()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        HumanFormatter(colour=has_colour(sys.stderr)) if is_terminal else JsonFormatter()
    )
    LOGGER.addHandler(handler)
    LOGGER.propagate = False
    says_all = is_terminal if verbose is None else verbose
    LOGGER.setLevel(logging.DEBUG if says_all else logging.INFO)


def served_queues(app: Holdfast, named: Sequence[str] | None) -> list[str]:
    """Those named, else those of the configuration, else all of the app."""
    queues = list(dict.fromkeys(named or app.config.queues or app.registry.queues))
    if not queues:
        raise ConfigurationError("this app has no tasks yet: there is nothing to serve")
    return [app.registry.require_queue(name) for name in queues]


async def serve(
    served: Sequence[tuple[Holdfast, Sequence[str]]], *, until_stdin_ends: bool
) -> None:
    """A node for each app, until a signal, the end of stdin, or a person who asks one to drain."""
    stop = asyncio.Event()
    _on_signals(stop.set)
    if until_stdin_ends:
        _watch_stdin(stop.set)
    async with AsyncExitStack() as stack:
        nodes = []
        for app, queues in served:
            await stack.enter_async_context(app)
            nodes.append(await stack.enter_async_context(app.node(queues)))
        await _first_of(stop, *(node.stopping for node in nodes))
        is_asked = any(node.stopping.is_set() for node in nodes)
        asked = "asked to drain" if is_asked else "stopping"
        LOGGER.info("%s: running attempts may finish; a second signal ends at once", asked)


async def _first_of(*events: asyncio.Event) -> None:
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)


def _on_signals(first: Callable[[], None]) -> None:
    asked = False

    def hear() -> None:
        nonlocal asked
        if asked:
            # Nothing is lost by this: the store is the truth, and the lease ends by itself.
            os._exit(INTERRUPTED)
        asked = True
        first()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, hear)


def _watch_stdin(ended: Callable[[], None]) -> None:
    """The supervisor holds the other end: when it dies, however it dies, we stop too."""
    loop = asyncio.get_running_loop()
    descriptor = sys.stdin.fileno()

    def look() -> None:
        with suppress(OSError):
            if os.read(descriptor, 1024):
                return
        loop.remove_reader(descriptor)
        ended()

    loop.add_reader(descriptor, look)
