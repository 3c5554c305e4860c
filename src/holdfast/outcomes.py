"""What a handler may say besides returning a result or raising an error.

Return one of the first four, raise one of the others:

    return Again(delay=60)            commit this run and repeat the task
    return Gone()                     done, and leave no row behind
    return EndSchedule()              done, and the schedule that fired the task fires no more
    return later                      a Later: somebody will report the end of this run
    raise RetryAfter(60)              this run failed; repeat it then, whatever the policy says
    raise GiveUp("card expired")      FAILED, on purpose
    raise ParkInError("who is this?") ERROR: a person looks
    raise CancelTask("obsolete")      CANCELLED
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from holdfast.policy import Seconds, seconds

R = TypeVar("R")


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


@dataclass(frozen=True, slots=True)
class EndSchedule:
    """Done; and the schedule that fired this task ends with it, in the same transaction.

    What it fired before still runs.  A task that no schedule fired is just done.
    """


class Later(Generic[R]):
    """The end of a run that somebody else will report: a callback, a reply, another thread.

    The handler hands it out and returns it.  The task stays PROCESSING and its slot booked until
    the first report, or until the time limit.  `done` and `failed` may be called from any thread
    of the process, also before the handler has returned; the first report counts, a later one
    changes nothing and answers False.  If the process dies, the task runs again elsewhere.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._report: tuple[Any, BaseException | None] | None = None
        self._is_closed = False
        self._tell: Callable[[], None] | None = None

    def done(self, result: R | Again | Gone | EndSchedule | None = None) -> bool:
        """Report a result, or what else a handler may return.  False: too late to count."""
        return self._reported(result, None)

    def failed(self, error: BaseException) -> bool:
        """Report an error, or what else a handler may raise.  False: too late to count."""
        return self._reported(None, error)

    # ── for the worker ────────────────────────────────────────────────────────────────────

    def listen(self, tell: Callable[[], None]) -> None:
        """Call `tell` once there is a report, from the reporter's thread, or at once."""
        with self._guard:
            assert self._tell is None, "a Later is returned by one run only"
            self._tell = tell
            is_known = self._report is not None
        if is_known:
            tell()

    def take(self) -> Any:
        """The reported result; raises the reported error."""
        assert self._report is not None, "nobody has reported yet"
        result, error = self._report
        if error is not None:
            raise error
        return result

    def close(self) -> None:
        """The run is over: whatever is reported from now on is too late."""
        with self._guard:
            self._is_closed = True

    def _reported(self, result: Any, error: BaseException | None) -> bool:
        with self._guard:
            if self._is_closed or self._report is not None:
                return False
            self._report = (result, error)
            tell = self._tell
        if tell is not None:
            tell()
        return True


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
