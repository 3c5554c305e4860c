"""After each test: no asyncio task, child process or non-daemon thread of it may be left."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Iterable

import psutil
import pytest

GRACE_S = 2.0  # for what was told to end and is about to
KEPT = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")


def running() -> tuple[set[int], set[threading.Thread]]:
    """The children and threads that are alive now."""
    children = {child.pid for child in psutil.Process().children()}
    return children, {thread for thread in threading.enumerate() if not thread.daemon}


def complaints(before: tuple[set[int], set[threading.Thread]], servers: Iterable[int]) -> list[str]:
    """What is left since `before`, after a short time of grace; servers of the session may stay."""
    children = [
        child
        for child in psutil.Process().children()
        if child.pid not in before[0] and child.pid not in set(servers) and not _is_kept(child)
    ]
    _, alive = psutil.wait_procs(children, timeout=GRACE_S)
    threads = [
        thread for thread in threading.enumerate() if not thread.daemon and thread not in before[1]
    ]
    for thread in threads:
        thread.join(GRACE_S)
    return [f"child process {child.pid}: {_command(child)}" for child in alive] + [
        f"thread {thread.name}" for thread in threads if thread.is_alive()
    ]


@pytest.fixture
async def no_task_left() -> AsyncIterator[None]:
    """Given to every async test, set up before all its other fixtures and torn down after them."""
    before = asyncio.all_tasks()
    yield
    tasks = asyncio.all_tasks() - before - {asyncio.current_task()}
    if tasks:
        _, pending = await asyncio.wait(tasks, timeout=GRACE_S)
        for task in pending:
            task.cancel()
        assert not pending, f"asyncio tasks left: {[task.get_coro() for task in pending]}"


def watch_tasks(items: Iterable[pytest.Item]) -> None:
    """Give every async test the fixture above."""
    for item in items:
        if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
            item.fixturenames.insert(0, "no_task_left")


def _is_kept(child: psutil.Process) -> bool:
    """Whether Python itself keeps this child until the end of the process."""
    return any(name in _command(child) for name in KEPT)


def _command(child: psutil.Process) -> str:
    try:
        return " ".join(child.cmdline())
    except psutil.Error:
        return "already gone"
