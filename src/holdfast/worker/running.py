"""One run of a handler: what was asked of it meanwhile, and where its code runs."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from typing import Any, TypeVar

from holdfast.handler import Handler
from holdfast.outcomes import Later
from holdfast.task import Grabbed, TaskId
from holdfast.worker.verdict import TimeLimitExceeded

T = TypeVar("T")


class Run:
    """One call of a handler, for one task or for a batch of them."""

    attempt: asyncio.Task[None]
    has_begun = False  # a task that is cancelled before its first step runs no line of ours
    taken_back: frozenset[TaskId] = frozenset()  # the store has moved them on
    is_stopped = False  # the node ends
    is_recorded = False  # its outcome is known to the settler already
    recorded: asyncio.Event | None = None  # set when the store has what was recorded ahead of it
    is_abandoned = False  # it runs on, but nobody waits for it

    def __init__(self, tasks: Sequence[Grabbed], started: float) -> None:
        self.tasks = tasks
        self.started = started

    def version_of(self, id: TaskId) -> int:
        return next(task.version for task in self.tasks if task.id == id)

    def begin(self) -> None:
        """The first step: whoever wanted to stop it before is obeyed now."""
        self.has_begun = True
        if self.is_stopped or len(self.taken_back) == len(self.tasks):
            raise asyncio.CancelledError

    def take_back(self, id: TaskId) -> bool:
        """Nobody wants the task's outcome any more; stop when that holds for all of them.

        False: that was known, or the attempt has ended and its outcome is on its way.
        """
        if self.is_recorded or id in self.taken_back:
            return False
        self.taken_back |= {id}
        if len(self.taken_back) == len(self.tasks) and self.has_begun:
            self.attempt.cancel()
        return not self.attempt.done()

    def stop(self) -> None:
        self.is_stopped = True
        if self.has_begun:
            self.attempt.cancel()


async def limited(handler: Handler, work: Awaitable[T]) -> T:
    """The answer of `work`, or TimeLimitExceeded; a TimeoutError of its own passes."""
    try:
        async with asyncio.timeout(handler.time_limit_s) as limit:
            return await work
    except TimeoutError:
        if limit.expired():
            raise TimeLimitExceeded(
                f"ran longer than its time limit of {handler.time_limit_s:g} s"
            ) from None
        raise


async def ended_later(work: Any) -> Any:
    """The result of `work`; when that is a Later, or `work` is one, what is reported to it."""
    result = work if isinstance(work, Later) else await work
    if not isinstance(result, Later):
        return result
    loop = asyncio.get_running_loop()
    reported = asyncio.Event()

    def tell() -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(reported.set)

    result.listen(tell)
    try:
        await reported.wait()
        return result.take()
    finally:
        result.close()


def call(handler: Handler, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What the function says to one task; a batch handler gets a list of one."""
    if handler.batch_max is not None:
        return handler.function(list(args))
    return handler.function(*args, **kwargs)


Called = tuple[Any, BaseException | None]


def in_thread(
    threads: Executor, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> asyncio.Future[Called]:
    """Call the function in a thread, with the context of the caller; see `answered`."""
    context = contextvars.copy_context()
    loop = asyncio.get_running_loop()
    return loop.run_in_executor(threads, _called, context, function, args, kwargs)


async def answered(called: Awaitable[Called]) -> Any:
    """What the function in the thread returned or raised.

    Its exception comes as a value, because a future cannot carry every one of them: some would
    stop the loop, and one would never arrive.
    """
    result, error = await called
    if error is not None:
        raise error
    return result


def _called(
    context: contextvars.Context,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Called:
    try:
        return context.run(function, *args, **kwargs), None
    except BaseException as error:
        return None, error
