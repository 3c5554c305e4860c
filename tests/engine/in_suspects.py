"""Handlers for processes of suspects: a child finds them under their names in this module.

A test registers the same functions in an app of its own, and names that app's store in ALONE_URL
when a transactional handler is to find it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from typing import Any

from holdfast import Again, Holdfast, Later, RetryAfter, current_task

app = Holdfast(os.environ.get("ALONE_URL", "sqlite:///never-opened.db"))


@app.task
async def pid() -> int:
    return os.getpid()


@app.task
def pid_of_thread() -> int:
    return os.getpid()


@app.task(mode="process")
def pid_of_process() -> int:
    return os.getpid()


@app.batch_task(max=10)
async def batch(numbers: list[int]) -> None:
    if len(numbers) > 1:
        raise AssertionError(f"not alone: {numbers}")


@app.task(transactional=True)
async def book(connection: Any, entry: str) -> int:
    done = connection.execute(f"INSERT INTO ledger (entry) VALUES ('{entry}')")
    if hasattr(done, "__await__"):
        await done
    if entry == "fails":
        raise ValueError("not today")
    if entry == "dies":
        os._exit(5)
    return os.getpid()


@app.task
async def say(what: str) -> str | Again:
    if what == "after" and current_task().attempt == 1:
        raise RetryAfter(0.01, "soon")
    if what == "again" and current_task().deliveries == 2:
        return Again()
    if what == "raises":
        raise ValueError("not today")
    return f"{what} {current_task().attempt} {os.getpid()}"


@app.task
async def die(how: str) -> None:
    sys.stderr.write("my last words\n")
    sys.stderr.flush()
    if how == "exit":
        os._exit(7)
    os.kill(os.getpid(), signal.SIGKILL)


@app.task
async def hang() -> None:
    await asyncio.Event().wait()


@app.task
async def leave_a_thread() -> int:
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    return os.getpid()


@app.task
async def end_later() -> Later[int]:
    later = Later[int]()
    later.done(os.getpid())
    return later


def own(app: Holdfast, task: Any, **options: Any) -> Any:
    """The same function as a task of the test's own app."""
    handler = task.handler
    if handler.batch_max is not None:
        return app.batch_task(max=handler.batch_max, **options)(handler.function)
    if handler.mode == "process":
        options["mode"] = "process"
    if handler.transactional:
        options["transactional"] = True
    return app.task(**options)(handler.function)


def die_at_the_start(*_: Any) -> None:
    """In place of the life of a child."""
    os._exit(9)
