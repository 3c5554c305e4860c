"""What an error looks like at the command line: what, why, what to do, and a code.

error HF1103: unknown kind 'send_emial'; did you mean 'send_email'?
  why: no task of this name is registered in the app
  do:  correct the name, or register it with @app.task
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from typing import NamedTuple, NoReturn

import typer

from holdfast import errors
from holdfast.address import redacted_url
from holdfast.store import Answer

INTERRUPTED = 130
CHECK_FAILED = 8
USAGE = 2


class Explained(NamedTuple):
    """The same for every error of one class."""

    code: str
    why: str
    advice: str


EXPLAINED: dict[type[errors.HoldfastError], Explained] = {
    errors.HoldfastError: Explained(
        "HF1000", "Holdfast refused to go on", "read the message above"
    ),
    errors.Refused: Explained(
        "HF1100", "the request is wrong; nothing was written", "correct it and ask again"
    ),
    errors.WrongArguments: Explained(
        "HF1101",
        "the arguments do not fit the task's signature; nothing was written",
        "compare them with the parameters of the handler",
    ),
    errors.PayloadRefused: Explained(
        "HF1102",
        "the arguments cannot be kept as a payload; nothing was written",
        "pass plain values, or the key of data that is stored elsewhere",
    ),
    errors.UnknownKind: Explained(
        "HF1103",
        "no task of this name is registered in the app; nothing was written",
        "correct the name, or register the handler with @app.task",
    ),
    errors.UnknownQueue: Explained(
        "HF1104",
        "no task of the app uses this queue; nothing was written",
        "correct the name, or give a task queue=…",
    ),
    errors.UnknownTask: Explained(
        "HF1105",
        "no task has this id, or it was cleaned away",
        "look for it with `holdfast task list`",
    ),
    errors.DuplicateTask: Explained(
        "HF1106",
        "the unique key or external id belongs to another task; nothing was added",
        "look at that task, or use another key",
    ),
    errors.TransactionRefused: Explained(
        "HF1107",
        "the connection given as within= cannot carry the task; nothing was written",
        "give a connection to the same database, inside a transaction",
    ),
    errors.ConfigurationError: Explained(
        "HF1108",
        "the app or a setting is not as it should be",
        "correct the setting; `holdfast config show --resolved` tells where each value comes from",
    ),
    errors.TaskNotDone: Explained(
        "HF1200", "the task ended without a result", "look at it with `holdfast task show ID`"
    ),
    errors.Unavailable: Explained("HF1300", "something outside failed", "try again later"),
    errors.StoreUnavailable: Explained(
        "HF1301",
        "the store cannot be used now; nothing was written",
        "check that the database runs and that the address is right, then repeat",
    ),
    errors.OutcomeUnknown: Explained(
        "HF1302",
        "the connection broke during a commit: it may or may not have happened",
        "look whether it is there before you repeat it; a unique key makes repeats safe",
    ),
    errors.ResultTimeout: Explained(
        "HF1303", "the task is not finished yet", "wait longer; the task goes on"
    ),
    errors.SchemaError: Explained(
        "HF1400",
        "the database is not prepared for this version of Holdfast; nothing was written",
        "compare them with `holdfast db status`",
    ),
    errors.SchemaMissing: Explained(
        "HF1401",
        "the tables do not exist, or are older than this code; nothing was written",
        "run `holdfast db migrate`",
    ),
    errors.SchemaTooNew: Explained(
        "HF1402",
        "the tables were made by a newer Holdfast; nothing was written",
        "install a newer Holdfast",
    ),
    errors.MissingExtra: Explained(
        "HF1500",
        "an optional driver is not installed",
        "install it as the message says",
    ),
}

ANSWERS: dict[Answer, Explained] = {
    Answer.NOT_FOUND: Explained("HF2102", "no task has this id, or it was cleaned away", ""),
    Answer.NOT_ALLOWED: Explained(
        "HF2103",
        "its state does not permit this; nothing was changed",
        "look at it with `holdfast task show ID`; a PROCESSING task is resumed only with --force",
    ),
    Answer.FAILED: Explained(
        "HF2104",
        "it is at another version than the one named; nothing was changed",
        "read it again with `holdfast task show ID`, then decide anew",
    ),
}
EXIT_CODES = {Answer.OK: 0, Answer.NOT_FOUND: 3, Answer.NOT_ALLOWED: 4, Answer.FAILED: 4}

NO_NODE = Explained(
    "HF2201", "no node of this id has a lease; nothing was changed", "look at `holdfast node list`"
)
NODE_ENDED = Explained(
    "HF2202", "its lease has ended: it runs nothing any more", "look at `holdfast node list`"
)
NOT_DRAINED = Explained(
    "HF2203",
    "tasks are still SUBMITTED or PROCESSING; they go on",
    "wait longer with --timeout, or look at `holdfast queue list`",
)
ENDINGS: dict[Explained, int] = {NO_NODE: 3, NODE_ENDED: 4, NOT_DRAINED: 7}

USAGE_CODE, BUG_CODE, CHECK_CODE = "HF1001", "HF1900", "HF1800"


class Problem(NamedTuple):
    """Three lines and an exit code."""

    code: str
    what: str
    why: str
    advice: str
    exit_code: int


def problem_of(error: errors.HoldfastError) -> Problem:
    """The three lines for an error of ours; the nearest class that is explained decides."""
    known = next(EXPLAINED[kind] for kind in type(error).__mro__ if kind in EXPLAINED)
    return Problem(known.code, str(error), known.why, known.advice, error.exit_code)


def show_problem(problem: Problem, *, secrets: Iterable[str] = ()) -> None:
    """Write the problem to stderr, without any password."""
    head = f"error {problem.code}: {cleaned(problem.what, secrets)}"
    typer.secho(head, err=True, fg="red" if has_colour(sys.stderr) else None)
    typer.echo(f"  why: {cleaned(problem.why, secrets)}", err=True)
    typer.echo(f"  do:  {cleaned(problem.advice, secrets)}", err=True)


def end_with(explained: Explained, what: str) -> NoReturn:
    """End the command with one of the ENDINGS."""
    exit_code = ENDINGS[explained]
    show_problem(Problem(explained.code, what, explained.why, explained.advice, exit_code))
    raise typer.Exit(exit_code)


def warn(text: str) -> None:
    """A line that must not be missed, on stderr; red at a terminal."""
    typer.secho(cleaned(text), err=True, fg="red" if has_colour(sys.stderr) else None)


def note(text: str) -> None:
    """A line for the person, on stderr."""
    typer.echo(cleaned(text), err=True)


def has_colour(stream: object) -> bool:
    """Whether a person with a colour terminal reads this stream."""
    is_terminal = getattr(stream, "isatty", lambda: False)()
    return bool(is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb")


_ADDRESS = re.compile(r"[a-z][a-z0-9+]*://[^\s'\"]+", re.IGNORECASE)


def cleaned(text: str, secrets: Iterable[str] = ()) -> str:
    """The text without the passwords of any address in it, nor any of the secrets named."""
    text = _ADDRESS.sub(lambda found: redacted_url(found.group()), text)
    for secret in secrets:
        text = text.replace(secret, "***")
    return text
