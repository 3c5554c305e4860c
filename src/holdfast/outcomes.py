"""What a handler may say besides returning a result or raising an error.

Return one of the first two, raise one of the others:

    return Again(delay=60)            commit this run and repeat the task
    return Gone()                     done, and leave no row behind
    raise RetryAfter(60)              this run failed; repeat it then, whatever the policy says
    raise GiveUp("card expired")      FAILED, on purpose
    raise ParkInError("who is this?") ERROR: a person looks
    raise CancelTask("obsolete")      CANCELLED
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.policy import Seconds, seconds


@dataclass(frozen=True, slots=True)
class Again:
    """Commit what was done and run the task once more, after `delay`.

    It counts as no failure; with `reset_attempts` earlier failures are forgotten too.
    """

    delay: Seconds = 0.0
    reset_attempts: bool = False


@dataclass(frozen=True, slots=True)
class Gone:
    """Done; delete the task instead of keeping it in the archive."""


class HandlerSays(Exception):
    """Base of what a handler raises to name its outcome itself."""


class RetryAfter(HandlerSays):
    """The run failed; repeat it after `delay`.  `counts` says whether it used up an attempt."""

    def __init__(self, delay: Seconds = 0.0, reason: str = "", *, counts: bool = True) -> None:
        super().__init__(reason or f"asked to be repeated after {seconds(delay):g} s")
        self.delay_s = seconds(delay)
        self.counts = counts


class GiveUp(HandlerSays):
    """End the task as FAILED."""


class ParkInError(HandlerSays):
    """Park the task in ERROR at once, without further retries."""


class CancelTask(HandlerSays):
    """End the task as CANCELLED."""
