"""The verdict: what a handler's return or exception means for its task.  Pure."""

from __future__ import annotations

import traceback
from random import Random
from typing import Any

from holdfast.errors import PayloadRefused
from holdfast.handler import Handler
from holdfast.outcomes import (
    Again,
    CancelTask,
    GiveUp,
    Gone,
    ParkInError,
    RetryAfter,
)
from holdfast.payload import sealed
from holdfast.policy import seconds
from holdfast.task import Event, Grabbed, Outcome

ERROR_CHARS_MAX = 8_000


class TimeLimitExceeded(Exception):
    """The attempt ran longer than its kind's time limit."""


class ProcessLost(Exception):
    """The pool process that ran the attempt died."""


def of_result(task: Grabbed, handler: Handler, result: Any) -> Outcome:
    """The outcome of a handler that returned."""
    match result:
        case None:
            return Outcome(task.id, task.version, Event.SUCCEEDED)
        case Gone():
            return Outcome(task.id, task.version, Event.SUCCEEDED, keep=False)
        case Again(delay, reset_attempts):
            wait_s = seconds(delay)
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
    """The outcome of a handler that raised."""
    text = error_text(error)
    match error:
        case RetryAfter(delay_s=wait_s, counts=counts):
            return _retry(task, wait_s, text, counts=counts)
        case GiveUp():
            return Outcome(task.id, task.version, Event.GIVEN_UP, error=text)
        case ParkInError():
            return Outcome(task.id, task.version, Event.PARKED, error=text)
        case CancelTask():
            return Outcome(task.id, task.version, Event.CANCELLED, error=text)
    if handler.retry.gives_up(error):
        return Outcome(task.id, task.version, Event.GIVEN_UP, error=text)
    delay_s = handler.retry.delay_s(error, attempt=task.attempt, rng=rng)
    if delay_s is None:
        return Outcome(task.id, task.version, Event.PARKED, error=text)
    return _retry(task, delay_s, text, counts=True)


def parked(task: Grabbed, reason: str) -> Outcome:
    """A task that cannot be run at all: a person looks."""
    return Outcome(task.id, task.version, Event.PARKED, error=reason)


def handed_back(task: Grabbed) -> Outcome:
    """An attempt that was stopped for no fault of its own: others may run it at once."""
    return Outcome(task.id, task.version, Event.REPEATED, counts=False)


def error_text(error: BaseException) -> str:
    """The error for people: its last frames, without any local values."""
    lines = traceback.format_exception(type(error), error, error.__traceback__, limit=-8)
    text = "".join(lines).rstrip()
    return text if len(text) <= ERROR_CHARS_MAX else "… " + text[-ERROR_CHARS_MAX:]


def _retry(task: Grabbed, delay_s: float, text: str, *, counts: bool) -> Outcome:
    event = Event.RETRIED if delay_s > 0 else Event.REPEATED
    return Outcome(task.id, task.version, event, delay_s=delay_s, error=text, counts=counts)


def _with_result(task: Grabbed, handler: Handler, result: Any) -> Outcome:
    try:
        body = sealed(handler.result.encode(result))
    except PayloadRefused as error:
        # The work is done; repeating it would not make the result any more writable.
        return parked(task, f"the handler ran, but its result {error}")
    return Outcome(task.id, task.version, Event.SUCCEEDED, result=body)
