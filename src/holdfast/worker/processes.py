"""Pool processes for handlers that need a core of their own.

Only (where the handler lives, encoded arguments) goes in and (what happened, encoded result)
comes out.  The child finds the handler in its own import of the program, never through the
payload.  A process that overruns its time limit is killed; one that dies takes only its own
attempt with it.
"""

from __future__ import annotations

import asyncio
import importlib
import multiprocessing
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.handler import Handler
from holdfast.payload import sealed
from holdfast.task import Grabbed
from holdfast.worker.context import enter
from holdfast.worker.verdict import ProcessLost, TimeLimitExceeded

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess


class RemoteError(Exception):
    """An exception of the child, as text; its type could not travel."""


class _Child(NamedTuple):
    process: SpawnProcess
    pipe: Connection


class ProcessPool:
    """At most `size` processes, started when they are needed and kept."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._idle: list[_Child] = []
        self._room = asyncio.Semaphore(size)
        self._all: set[_Child] = set()

    async def run(self, task: Grabbed, handler: Handler) -> bytes | None:
        """The handler's sealed result; its exception, ProcessLost or TimeLimitExceeded."""
        async with self._room:
            child = self._idle.pop() if self._idle else self._start()
            try:
                answer = await self._ask(child, task, handler)
            except BaseException:
                self._end(child)
                raise
            self._idle.append(child)
        kind, content = answer
        if kind == "result":
            return content  # type: ignore[no-any-return]
        if kind == "raised":
            raise _rebuilt(handler, content)
        raise RemoteError(content)

    def close(self) -> None:
        for child in list(self._all):
            self._end(child)

    async def _ask(self, child: _Child, task: Grabbed, handler: Handler) -> tuple[str, Any]:
        function = handler.function
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        loop.add_reader(child.pipe.fileno(), ready.set)
        try:
            child.pipe.send((function.__module__, function.__qualname__, tuple(task)))
            async with asyncio.timeout(handler.time_limit_s):
                await ready.wait()
            return child.pipe.recv()  # type: ignore[no-any-return]
        except TimeoutError:
            raise TimeLimitExceeded(
                f"ran longer than its time limit of {handler.time_limit_s:g} s; "
                "its process was killed"
            ) from None
        except (EOFError, OSError):
            child.process.join(1)
            raise ProcessLost(
                f"the process of the attempt died ({_death(child.process.exitcode)})"
            ) from None
        finally:
            loop.remove_reader(child.pipe.fileno())

    def _start(self) -> _Child:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs,), daemon=True)
        process.start()
        theirs.close()
        child = _Child(process, ours)
        self._all.add(child)
        return child

    def _end(self, child: _Child) -> None:
        self._all.discard(child)
        child.process.kill()
        child.process.join(5)
        child.pipe.close()


def _death(exitcode: int | None) -> str:
    if exitcode is not None and exitcode < 0:
        return signal.Signals(-exitcode).name
    return f"exit code {exitcode}"


def _rebuilt(handler: Handler, content: tuple[str, str, str]) -> BaseException:
    """The child's exception, as its own class where this process knows it by the same name."""
    module, name, text = content
    found = getattr(importlib.import_module(module), name, None)
    if isinstance(found, type) and issubclass(found, BaseException):
        try:
            return found(text)
        except Exception:
            return RemoteError(f"{name}: {text}")
    return RemoteError(f"{name}: {text}")


def _serve(pipe: Connection) -> None:
    """The child's life: one attempt after the other, until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        try:
            module, name, row = pipe.recv()
        except (EOFError, OSError):
            return
        pipe.send(_run(_function(module, name), Grabbed(*row)))


def _function(module: str, name: str) -> Handler:
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found.handler  # type: ignore[no-any-return]


def _run(handler: Handler, task: Grabbed) -> tuple[str, Any]:
    enter(task)
    function: Callable[..., Any] = handler.function
    try:
        args, kwargs = handler.arguments.unseal(task.payload)
        result = function(*args, **kwargs)
        return "result", None if result is None else sealed(handler.result.encode(result))
    except Exception as error:
        return "raised", (type(error).__module__, type(error).__name__, str(error))
