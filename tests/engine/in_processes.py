"""Handlers for pool processes: a child finds them under their names in this module.

The app here is never opened; each test registers the same functions in an app of its own.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

from holdfast import Again, EndSchedule, GiveUp, Gone, Holdfast, RetryAfter, current_task

app = Holdfast("sqlite:///never-opened.db")


class Odd(Exception):
    """An exception whose parameters nobody could guess."""

    def __init__(self, first: int, *, second: int) -> None:
        super().__init__(f"{first} and {second}")


@app.task(mode="process")
def pid() -> int:
    return os.getpid()


@app.task(mode="process")
def attempt_and_note() -> tuple[int, Any]:
    return current_task().attempt, current_task().metadata["note"]


@app.task(mode="process")
def end_schedule() -> EndSchedule:
    return EndSchedule()


@app.task(mode="process")
def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(mode="process")
def hang() -> None:
    threading.Event().wait()


@app.task(mode="process")
def say(what: str) -> str | Again | Gone:
    if what == "odd":
        raise Odd(1, second=2)
    if what == "give up":
        raise GiveUp("on purpose")
    if what == "after" and current_task().deliveries == 1:
        raise RetryAfter(0.01, "soon", counts=False)
    if what == "again" and current_task().deliveries == 1:
        return Again()
    return Gone() if what == "gone" else f"{what} {current_task().attempt}"


def own(app: Holdfast, task: Any, **options: Any) -> Any:
    """The same function as a task of the test's own app."""
    return app.task(mode="process", **options)(task.handler.function)
