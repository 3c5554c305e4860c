"""`manage.py holdfast_worker`: a node for the backends of TASKS, or several in processes."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connections
from django.utils.module_loading import autodiscover_modules

from holdfast import loops
from holdfast.app import Holdfast
from holdfast.cli.fleet import supervise
from holdfast.cli.worker import log_to_stderr, serve
from holdfast.errors import HoldfastError
from holdfast.integrations.django.backend import holdfast_backends
from holdfast.worker.memory import collect_seldom

PROCESSES_MAX = 256


class Command(BaseCommand):  # type: ignore[misc]
    help = (
        "Run tasks until SIGTERM or Ctrl-C; running attempts finish. A second signal ends at once. "
        "Safe to kill at any moment: what it was running goes on elsewhere."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--queue", action="append", help="Serve this queue; may be repeated. Else: all."
        )
        parser.add_argument(
            "--backend", action="append", help="Serve this backend of TASKS; may be repeated."
        )
        parser.add_argument("--processes", type=int, default=1, help="How many nodes.")
        parser.add_argument("--until-stdin-ends", action="store_true", help=argparse.SUPPRESS)

    def handle(self, *args: Any, **options: Any) -> None:
        if not 1 <= options["processes"] <= PROCESSES_MAX:
            raise CommandError(f"--processes is a number from 1 to {PROCESSES_MAX}")
        log_to_stderr(options["verbosity"] > 1)
        served = _served(options["backend"], options["queue"])
        autodiscover_modules("tasks")
        connections.close_all()
        try:
            loops.check(served[0][0].config.loop)
            if options["processes"] > 1:
                command = _command(options)
                code = asyncio.run(supervise(served[0][0], command, options["processes"]))
                sys.exit(code)
            collect_seldom()
            serving = serve(served, until_stdin_ends=options["until_stdin_ends"])
            loops.run(serving, loop=served[0][0].config.loop)
        except HoldfastError as error:
            raise CommandError(str(error)) from error


def _served(
    aliases: Sequence[str] | None, queues: Sequence[str] | None
) -> list[tuple[Holdfast, list[str]]]:
    """The app of each backend, with those of its queues that are asked for."""
    backends = [one for one in holdfast_backends() if not aliases or one.alias in aliases]
    if not backends:
        raise CommandError(
            f"TASKS has no backend of Holdfast called {', '.join(aliases)}"
            if aliases
            else "TASKS has no backend of Holdfast: set BACKEND to "
            '"holdfast.integrations.django.HoldfastBackend"'
        )
    known = {queue for backend in backends for queue in backend.queues}
    if unknown := set(queues or ()) - known:
        raise CommandError(
            f"no backend has the queue {', '.join(sorted(unknown))}; "
            f"known: {', '.join(sorted(known))}"
        )
    wanted = set(queues) if queues else known
    chosen = [(one.holdfast, sorted(wanted & set(one.queues))) for one in backends]
    return [(app, names) for app, names in chosen if names]


def _command(options: dict[str, Any]) -> list[str]:
    """How a child is started: as we were, with one process."""
    program = Path(sys.argv[0])
    is_script = program.suffix == ".py" and program.name != "__main__.py"
    command = [sys.executable, *([str(program)] if is_script else ["-m", "django"])]
    command += ["holdfast_worker", "--until-stdin-ends", f"--verbosity={options['verbosity']}"]
    for name in ("queue", "backend"):
        command += [f"--{name}={value}" for value in options[name] or ()]
    return command
