"""The commands, and the one place where an error becomes three lines and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.main import get_command

from holdfast.address import secrets_of
from holdfast.cli import db, error, node, queue, schedule, settings, task
from holdfast.cli.completion import ASKED, completion, prepare
from holdfast.cli.dev import CHILD, dev
from holdfast.cli.doctor import doctor
from holdfast.cli.find import AppArgument
from holdfast.cli.problems import (
    INTERRUPTED,
    USAGE,
    USAGE_CODE,
    Problem,
    problem_of,
    show_problem,
)
from holdfast.cli.sim import sim, verify
from holdfast.cli.top import top
from holdfast.cli.why import why
from holdfast.cli.worker import worker
from holdfast.errors import HoldfastError

# The class of wrong usage, whichever way typer carries its own parser.
UsageError: Any = typer.BadParameter.__mro__[1]

root = typer.Typer(
    name="holdfast",
    help="A durable task queue that lives in your own database and your own transactions.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: holdfast demo",
)
root.command(epilog="Example: holdfast worker orders:app --queue mail --processes 4")(worker)
root.command(epilog="Example: holdfast why 4711")(why)
root.command(epilog="Example: holdfast doctor orders:app")(doctor)
root.command(epilog="Example: holdfast dev orders:app")(dev)
root.command(epilog="Example: holdfast top --every 5s")(top)
root.command(epilog="Example: holdfast sim --seeds 200")(sim)
root.command(epilog="Example: holdfast verify history.jsonl")(verify)
root.command(epilog="""Example: eval "$(holdfast completion bash)\"""")(completion)
root.add_typer(task.commands, name="task")
root.add_typer(queue.commands, name="queue")
root.add_typer(error.commands, name="error")
root.add_typer(node.commands, name="node")
root.add_typer(schedule.commands, name="schedule")
root.add_typer(db.commands, name="db")
root.add_typer(settings.commands, name="config")


@root.command(epilog="Example: holdfast demo")
def demo(
    plain: Annotated[
        bool, typer.Option("--plain", help="Plain lines, also on a terminal.")
    ] = False,
) -> None:
    """A guided minute on a temporary SQLite file: a node is killed, and nothing is lost."""
    # The demo is no part of what a node needs: only who asks for it pays for its import.
    from holdfast.demo.show import run_demo

    raise typer.Exit(run_demo(plain=plain))


@root.command(CHILD, hidden=True)
def dev_node(app: AppArgument, greets: Annotated[bool, typer.Option("--greets")] = False) -> None:
    """The child of `holdfast dev`."""
    from holdfast.cli.dev_node import run_node

    run_node(app, greets=greets)


@root.command(epilog="Example: holdfast version")
def version() -> None:
    """Print the version of Holdfast."""
    import holdfast

    typer.echo(holdfast.__version__)


def run(argv: Sequence[str] | None = None) -> int:
    """Run the command line and answer the exit code.

    An error of ours is never a traceback; the password of an address is never shown.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    is_completing = ASKED in os.environ
    if is_completing:
        prepare()
    if is_completing or not arguments or arguments[0] in ("bench", "-h", "--help"):
        _add_bench()
    try:
        code = get_command(root).main(arguments, prog_name="holdfast", standalone_mode=False)
    except HoldfastError as error:
        problem = problem_of(error)
        show_problem(problem, secrets=_secrets(arguments))
        return problem.exit_code
    except UsageError as error:
        return _wrong_usage(error, arguments)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    return code if isinstance(code, int) else 0


def _add_bench() -> None:
    """Benchmarks bring much with them: only who asks for them, or for the list, waits for it."""
    if find_spec("holdfast.bench") is not None and find_spec("holdfast.bench.cli") is not None:
        root.add_typer(import_module("holdfast.bench.cli").app, name="bench")


def _wrong_usage(error: Any, arguments: Sequence[str]) -> int:
    """What typer says about an option or a command, as three lines with a suggestion."""
    if type(error).__name__ == "NoArgsIsHelpError":
        typer.echo(error.ctx.get_help() if error.ctx else "", err=True)
        return USAGE
    path = error.ctx.command_path if error.ctx else "holdfast"
    text = error.format_message().rstrip(".")
    near = _near_option(error)
    if near and near not in text:
        text += f". Did you mean {near!r}?"
    problem = Problem(
        USAGE_CODE, text, f"`{path}` was not called as it expects", f"see `{path} --help`", USAGE
    )
    show_problem(problem, secrets=_secrets(arguments))
    return USAGE


def _near_option(error: Any) -> str | None:
    name = getattr(error, "option_name", None)
    if name is None or error.ctx is None:
        return None
    known = [option for one in error.ctx.command.params for option in one.opts]
    return next(iter(get_close_matches(name, known, n=1)), None)


def _secrets(arguments: Sequence[str]) -> list[str]:
    """Every password that this process could have heard of."""
    urls = [part for argument in arguments for part in argument.split("=", 1) if "://" in part]
    for name in ("HOLDFAST_URL", "HOLDFAST_LISTEN_URL"):
        urls.append(os.environ.get(name, ""))
        path = Path(os.environ.get(f"{name}_FILE", ""))
        if path.is_file():
            urls.append(path.read_text(encoding="utf-8", errors="replace").strip())
    return secrets_of(*urls)
