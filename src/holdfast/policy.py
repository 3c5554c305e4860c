"""Policies: pure decisions about retries, deadlines, retention and uniqueness.

A policy is an object supplied in code for a kind.  It can be replaced by anything of the same
shape, and it can be built from configuration by a layer on top.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Literal, Protocol, get_args

Seconds = float | timedelta


def seconds(value: Seconds) -> float:
    """A duration as seconds, however the user wrote it."""
    return value.total_seconds() if isinstance(value, timedelta) else float(value)


class RetryPolicy(Protocol):
    def delay_s(self, error: BaseException, *, attempt: int, rng: Random) -> float | None:
        """How long to wait after attempt number `attempt` failed with `error`; None: no more."""
        ...

    def gives_up(self, error: BaseException) -> bool:
        """Whether this error ends the task as FAILED instead of parking it in ERROR."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Exponential retries: wait `delay * factor ** (n - 1)` after failure n, at most `delay_max`.

    `attempts` counts all runs, the first included: Retry(attempts=1) never repeats.  Only errors
    of the types in `on` are repeated; those in `give_up_on` end the task as FAILED at once.
    `jitter` spreads each wait by that fraction up or down.
    """

    attempts: int = 1
    delay: Seconds = 1.0
    factor: float = 2.0
    delay_max: Seconds = timedelta(days=1)
    jitter: float = 0.0
    on: tuple[type[BaseException], ...] | type[BaseException] = Exception
    give_up_on: tuple[type[BaseException], ...] | type[BaseException] = ()

    def __post_init__(self) -> None:
        if self.attempts < 1 or seconds(self.delay) < 0 or self.factor <= 0:
            raise ValueError("Retry needs attempts >= 1, delay >= 0 and factor > 0")
        if not 0 <= self.jitter < 1:
            raise ValueError("Retry needs a jitter of at least 0 and below 1")

    def delay_s(self, error: BaseException, *, attempt: int, rng: Random) -> float | None:
        if attempt >= self.attempts or not isinstance(error, self.on) or self.gives_up(error):
            return None
        wait = self._exponential(attempt)
        return wait * rng.uniform(1 - self.jitter, 1 + self.jitter) if self.jitter else wait

    def gives_up(self, error: BaseException) -> bool:
        return isinstance(error, self.give_up_on)

    def _exponential(self, attempt: int) -> float:
        cap = seconds(self.delay_max)
        try:
            return float(min(seconds(self.delay) * self.factor ** (attempt - 1), cap))
        except OverflowError:
            return cap


NO_RETRY = Retry(attempts=1)


class Sharding(Protocol):
    def partition(self, *, partitions: int, number: int, ordering_key: str | None) -> int:
        """The partition of a new task, from 0 to `partitions` - 1.

        Tasks of one ordering key must always get the same one: its owner keeps their order.
        `number` counts the tasks of this process, to spread what has no key.
        """
        ...


class Spread:
    """By the ordering key where there is one, else in turn."""

    def partition(self, *, partitions: int, number: int, ordering_key: str | None) -> int:
        if ordering_key is None:
            return number % partitions
        return zlib.crc32(ordering_key.encode()) % partitions


Stuck = Literal["retry", "error", "failed", "ignore"]


@dataclass(frozen=True, slots=True)
class Deadline:
    """After which a PROCESSING task counts as stuck, by the store's clock, and what then.

    "error" parks it for a person, "retry" submits it again (as often as a task may be delivered
    without an outcome), "failed" gives it up, and "ignore" only warns and waits as long again.
    """

    processing: Seconds = timedelta(hours=1)
    stuck: Stuck = "error"

    def __post_init__(self) -> None:
        if self.stuck not in get_args(Stuck):
            raise ValueError(f"Deadline needs stuck= as one of {', '.join(get_args(Stuck))}")
        if not self.seconds > 0:
            raise ValueError("Deadline needs a time above 0")

    @property
    def seconds(self) -> float:
        return seconds(self.processing)


@dataclass(frozen=True, slots=True)
class Retention:
    """How long finished tasks stay in the archive."""

    finished: timedelta = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Unique:
    """At most one task with this key within its kind.

    For `period` from the enqueue, or, without one, as long as the task is kept.  `on_duplicate`
    says what a second enqueue does: "existing" answers the first task, "error" raises
    DuplicateTask.
    """

    key: str
    period: Seconds | None = None
    on_duplicate: Literal["existing", "error"] = "existing"
