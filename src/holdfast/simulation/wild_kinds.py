"""Handlers that end in every way that there is, wherever they run, and a policy that refuses them.

They stand at the top of their module: so a pool process may run them too.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import datetime, timedelta
from functools import cache
from random import Random
from typing import Any

from holdfast.app import Holdfast
from holdfast.booking import Full
from holdfast.errors import StoreUnavailable
from holdfast.handler import Handler
from holdfast.outcomes import (
    Again,
    CancelTask,
    EndSchedule,
    GiveUp,
    Gone,
    Later,
    ParkInError,
    RetryAfter,
)
from holdfast.policy import Deadline, Retry
from holdfast.simulation.children import crash
from holdfast.simulation.kinds import CONFIG, STUCK_S, Failed, act
from holdfast.simulation.truth import UNSTORABLE
from holdfast.simulation.world import here
from holdfast.task import Trigger
from holdfast.worker.context import current_task

REPEATS_MAX = 2
TEXT_CHARS = 9_000  # of an error that nobody wants to keep as a whole
WORDS = (
    "nothing", "again", "forget", "nan", "gone", "end", "result", "unwritable", "unstorable",
    "retry after", "uncounted", "give up", "park", "cancel", "hopeless", "exit", "long", "late",
    "cut", "away", "fail", "later",
)  # fmt: skip

Item = tuple[str, str, float]  # the request, what to do, and until when to repeat it


class Hopeless(Exception):
    """What a policy gives up on."""


class Unruly:
    """A retry policy with a mistake in it."""

    def delay_s(self, error: BaseException, *, attempt: int, rng: Random) -> float | None:
        raise ZeroDivisionError

    def gives_up(self, error: BaseException) -> bool:
        return False


def said(words: str) -> Any:
    """Return or raise what the words say.  What repeats the task does so twice at most."""
    if current_task().deliveries <= REPEATS_MAX:
        match words:
            case "again":
                return Again(timedelta(milliseconds=100))
            case "forget":
                return Again(reset_attempts=True)
            case "nan":
                return Again(float("nan"))
            case "retry after":
                raise RetryAfter(0.2)
            case "uncounted":
                raise RetryAfter(counts=False)
            case "away":
                raise StoreUnavailable("simulated: the handler's own store")
            case "fail":
                raise Failed
    if words in _RAISED:
        raise _RAISED[words]()
    made = _RETURNED.get(words)
    return None if made is None else made()


_RETURNED: dict[str, Any] = {
    "gone": Gone,
    "end": EndSchedule,
    "result": lambda: {"done": 1},
    "unwritable": object,
    "unstorable": lambda: UNSTORABLE,
    "later": Later,
}
_RAISED: dict[str, Any] = {
    "give up": GiveUp,
    "park": ParkInError,
    "cancel": CancelTask,
    "hopeless": Hopeless,
    "exit": SystemExit,
    "late": TimeoutError,
    "cut": asyncio.CancelledError,
    "long": lambda: Failed("postgresql://me:secret@host/\0" + TEXT_CHARS * "x"),
}


def spend(takes_s: float) -> None:
    """Be an attempt of this length in a thread, or in a process of the pool."""
    process = here()
    assert process is not None, "a handler runs in a process"
    task = current_task()
    process.tell("start", task=task.id, version=task.version, node=process.node)
    loop: Any = asyncio.get_running_loop()
    loop.spent_s += takes_s


async def speaking(words: str, takes_s: float) -> Any:
    await act(takes_s)
    return _reported(words) if words == "later" else said(words)


async def unruly(takes_s: float) -> None:
    await act(takes_s)
    raise Failed


async def writing(connection: object, words: str, takes_s: float) -> Any:
    await act(takes_s)
    return said(words)


async def skipping(words: str, takes_s: float) -> Any:
    await act(takes_s)
    return None if words == "later" else said(words)


async def reporting(words: str, takes_s: float) -> Later[Any]:
    await act(0.0)
    return _reported(words, takes_s)


def _reported(words: str, takes_s: float = 0.0) -> Later[Any]:
    """The end comes later, or has come already; a second report changes nothing."""
    report: Later[Any] = Later()
    loop = asyncio.get_running_loop()
    ends = [report.done, lambda: report.failed(Failed())]
    if words in ("fail", "park"):
        ends.reverse()
    if words in ("gone", "early"):
        report.done(Gone())
    for end in ends:
        loop.call_later(takes_s, end)
    return report


def threaded(words: str, takes_s: float) -> Any:
    spend(takes_s)
    return _reported(words) if words == "later" else said(words)


def pooled(words: str, takes_s: float) -> Any:
    spend(takes_s)
    if words == "cut":
        crash()
    return said(words)


async def overdue_error(takes_s: float) -> None:
    await act(takes_s)


async def overdue_failed(takes_s: float) -> None:
    await act(takes_s)


async def overdue_ignored(takes_s: float) -> None:
    await act(takes_s)


async def deaf(takes_s: float) -> None:
    """Does not hear that it should stop."""
    await act(0.0)
    loop = asyncio.get_running_loop()
    until = loop.time() + takes_s
    while loop.time() < until:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(until - loop.time())


async def poison(times: int) -> None:
    """Ends the process that it runs in, so often."""
    await act(0.01)
    if current_task().deliveries <= times:
        crash()


async def misjudged(takes_s: float) -> None:
    await act(takes_s)


async def gathered(items: list[Item]) -> Any:
    """Many in one call: one that fails, or is late, is the fate of all of them."""
    process = here()
    assert process is not None
    process.tell("batch", requests=[request for request, _, _ in items], node=process.node)
    deeds = {deed for _, deed, _ in items}
    await asyncio.sleep(STUCK_S if "late" in deeds else 0.05)
    if "fail" in deeds:
        raise Failed
    now_s = asyncio.get_running_loop().time()
    if any(deed == "again" and now_s < until_s for _, deed, until_s in items):
        return Again(0.3)
    return Gone() if "gone" in deeds else 1


@cache
def wild_handlers() -> tuple[Handler, ...]:
    """Every kind, made once: a signature is slow to read."""
    app = Holdfast(config=CONFIG)
    retry = Retry(attempts=3, delay=0.2, jitter=0.5, give_up_on=Hopeless)
    app.task(queue="work", retry=retry)(speaking)
    app.task(queue="work", retry=Unruly())(unruly)
    app.task(queue="other", transactional=True, retry=retry)(writing)
    app.task(queue="work", retry=retry, on_error="skip")(skipping)
    app.task(queue="other", time_limit=1.0, retry=retry)(reporting)
    app.task(queue="work", time_limit=1.0, retry=retry)(threaded)
    app.task(queue="other", mode="process", time_limit=2.0, retry=retry)(pooled)
    app.task(queue="work", deadline=Deadline(2.0))(overdue_error)
    app.task(queue="work", deadline=Deadline(2.0, stuck="failed"))(overdue_failed)
    app.task(queue="other", deadline=Deadline(2.0, stuck="ignore"), turns=2.0)(overdue_ignored)
    app.task(queue="other")(deaf)
    app.task(queue="work")(poison)
    app.task(queue="other")(misjudged)
    app.batch_task(max=3, queue="work", time_limit=0.5, retry=Retry(attempts=2, delay=0.2))(
        gathered
    )
    return tuple(app.registry)


class Moody:
    """A booking policy: it takes nothing in the first half of a second, and cannot judge a kind."""

    def __init__(self) -> None:
        self.taken = 0

    def book(self, trigger: Trigger, *, now: datetime) -> Full | None:
        if trigger.kind == "misjudged":
            raise LookupError("simulated: who is this?")
        half = now.replace(microsecond=500_000)
        if trigger.id % 3 and now < half:
            return Full(half, key_only=trigger.id % 3 == 1)
        self.taken += 1
        return None

    def free(self, trigger: Trigger) -> None:
        assert self.taken > 0, f"freed a slot that was not booked: {trigger}"
        self.taken -= 1
