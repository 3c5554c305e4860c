"""The verdict: what a handler's return or exception means for its task.  Pure."""

from __future__ import annotations

import math
import re
import traceback
from datetime import datetime, timedelta
from random import Random
from typing import Any

from holdfast.errors import PayloadRefused
from holdfast.handler import Handler
from holdfast.outcomes import (
    Again,
    CancelTask,
    EndSchedule,
    GiveUp,
    Gone,
    ParkInError,
    RetryAfter,
)
from holdfast.payload import sealed
from holdfast.policy import Seconds, seconds
from holdfast.schedule import slot_of
from holdfast.task import Event, Grabbed, Outcome

ERROR_CHARS_MAX = 8_000
_OURS = "holdfast.worker."
FRAMES_MAX = 8
DELAY_S_MAX = 100 * 365 * 86_400.0  # what a store can still add to a time of day
PUT_BACK_S = 2.0
POSTPONED_S = 1.0

_PASSWORD = re.compile(r"(://[^/\s:@]*:)[^/\s@]+@")


class TimeLimitExceeded(Exception):
    """The attempt ran longer than its kind's time limit."""


class ProcessLost(Exception):
    """The pool process that ran the attempt died; `how` is what is known of its death."""

    def __init__(self, how: str, *, last_words: str = "", has_started: bool = True) -> None:
        super().__init__(f"the process of the attempt died ({how})")
        self.how = how
        self.last_words = last_words  # to stderr
        self.has_started = has_started  # False: before the first line of the handler


class HandlerCancelled(Exception):
    """Something that the handler awaited was cancelled, though nobody stopped the attempt."""


def of_result(task: Grabbed, handler: Handler, result: Any) -> Outcome:
    """The outcome of a handler that returned; a batch handler says nothing of one task's result."""
    if handler.batch_max is not None and not isinstance(result, Again | Gone | EndSchedule):
        result = None
    match result:
        case None:
            return Outcome(task.id, task.version, Event.SUCCEEDED)
        case Gone():
            return Outcome(task.id, task.version, Event.SUCCEEDED, keep=False)
        case EndSchedule():
            fired = slot_of(task.metadata)
            ends = None if fired is None else fired.name
            return Outcome(task.id, task.version, Event.SUCCEEDED, ends=ends)
        case Again(delay, reset_attempts):
            wait_s = _storable_s(delay)
            return Outcome(
                task.id,
                task.version,
                Event.RETRIED if wait_s > 0 else Event.REPEATED,
                delay_s=wait_s,
                counts=False,
                resets=reset_attempts,
            )
        case _:
            return _with_result(task, handler, result)


def of_error(task: Grabbed, handler: Handler, error: BaseException, *, rng: Random) -> Outcome:
    """The outcome of a handler that raised.  A policy that raises itself lets a person look."""
    text = error_text(error)
    try:
        return _of_error(task, handler, error, text, rng)
    except Exception as wrong:
        return parked(task, f"{text}\n\nand the retry policy failed:\n{error_text(wrong)}")


def _of_error(
    task: Grabbed, handler: Handler, error: BaseException, text: str, rng: Random
) -> Outcome:
    match error:
        case RetryAfter(delay_s=wait_s, counts=counts):
            return _retry(task, wait_s, text, counts=counts)
        case GiveUp():
            return Outcome(task.id, task.version, Event.GIVEN_UP, error=text)
        case ParkInError():
            return parked(task, text)
        case CancelTask():
            return Outcome(task.id, task.version, Event.CANCELLED, error=text)
    if handler.retry.gives_up(error):
        return Outcome(task.id, task.version, Event.GIVEN_UP, error=text)
    delay_s = handler.retry.delay_s(error, attempt=task.attempt, rng=rng)
    if delay_s is None:
        return parked(task, text)
    return _retry(task, delay_s, text, counts=True)


def before_next_run(task: Grabbed, outcome: Outcome, now: datetime) -> Outcome:
    """The outcome of a failure, given the next regular run of the schedule that fired the task.

    A retry is used only if it is earlier; else the task has failed and the schedule goes on.
    """
    fired = slot_of(task.metadata)
    if outcome.event not in (Event.RETRIED, Event.REPEATED) or fired is None:
        return outcome
    if fired.next_at is None or now + timedelta(seconds=outcome.delay_s) < fired.next_at:
        return outcome
    why = f"not repeated: its next regular run comes first, at {fired.next_at.isoformat()}"
    error = storable(f"{outcome.error}\n\n{why}")
    return Outcome(task.id, task.version, Event.GIVEN_UP, error=error)


def parked(task: Grabbed, reason: str) -> Outcome:
    """A task that cannot be run, or not any more: a person looks."""
    return Outcome(task.id, task.version, Event.PARKED, error=storable(reason))


def poisonous(task: Grabbed, lost: ProcessLost) -> Outcome:
    """A suspect that ended its process while nobody else ran there: no retry makes it harmless."""
    text = f"delivered {task.deliveries} times, and alone in a process it ended it: {lost.how}"
    if lost.last_words:
        text = f"the last lines on stderr:\n{lost.last_words}\n\n{text}"
    return parked(task, text)


def unreadable(task: Grabbed, error: BaseException) -> Outcome:
    """A task whose arguments do not fit the handler: no retry would make them fit."""
    return parked(task, f"the payload does not fit the handler: {error}")


def handed_back(task: Grabbed) -> Outcome:
    """An attempt that was stopped for no fault of its own: others may run it at once."""
    return Outcome(task.id, task.version, Event.REPEATED, counts=False, forgives=False)


def cleared(task: Grabbed, error: BaseException) -> Outcome:
    """A suspect that raised, alone, without harm: again, where everybody runs, and uncounted."""
    text = error_text(error)
    return Outcome(task.id, task.version, Event.REPEATED, error=text, counts=False)


def is_meant(handler: Handler, error: BaseException) -> bool:
    """Whether the handler says with this exception what should become of its task."""
    words = RetryAfter | GiveUp | ParkInError | CancelTask | TimeLimitExceeded
    return isinstance(error, words) or handler.retry.gives_up(error)


def postponed(task: Grabbed, error: BaseException) -> Outcome:
    """An attempt that failed for no fault of its own, as the store did: again, but not at once."""
    return Outcome(
        task.id,
        task.version,
        Event.RETRIED,
        delay_s=POSTPONED_S,
        error=error_text(error),
        counts=False,
        forgives=False,
    )


def put_back(task: Grabbed) -> Outcome:
    """An attempt that has not begun for want of room: again a little later, uncounted."""
    return Outcome(
        task.id, task.version, Event.RETRIED, delay_s=PUT_BACK_S, counts=False, forgives=False
    )


def error_text(error: BaseException) -> str:
    """The error for people: its last frames, without local values and passwords."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals.get("__name__", "").startswith(_OURS):
        trace = trace.tb_next  # how the worker called the handler helps nobody
    lines = traceback.format_exception(type(error), error, trace, limit=-FRAMES_MAX)
    return storable("".join(lines).rstrip())


def storable(text: str) -> str:
    """The text as every store can keep it: bounded, without NUL and halves of characters.

    One outcome that cannot be written would hold up all those that travel with it.
    """
    if len(text) > ERROR_CHARS_MAX:
        text = "… " + text[-ERROR_CHARS_MAX:]
    text = _PASSWORD.sub(r"\1***@", text).replace("\0", "\\0")
    return text.encode("utf-8", "backslashreplace").decode()


def _retry(task: Grabbed, delay: Seconds, text: str, *, counts: bool) -> Outcome:
    delay_s = _storable_s(delay)
    event = Event.RETRIED if delay_s > 0 else Event.REPEATED
    return Outcome(task.id, task.version, event, delay_s=delay_s, error=text, counts=counts)


def _storable_s(delay: Seconds) -> float:
    delay_s = seconds(delay)
    if math.isnan(delay_s):
        raise ValueError("a delay must be a number of seconds, not nan")
    return min(max(delay_s, 0.0), DELAY_S_MAX)


def _with_result(task: Grabbed, handler: Handler, result: Any) -> Outcome:
    try:
        body = sealed(handler.result.encode(result))
    except PayloadRefused as error:
        # The work is done; repeating it would not make the result any more writable.
        return parked(task, f"the handler ran, but its result {error}")
    return Outcome(task.id, task.version, Event.SUCCEEDED, result=body)
