"""A clock that stands still until a test moves it."""

from __future__ import annotations

from datetime import datetime, timedelta

from holdfast.clock import SystemClock
from holdfast.policy import Seconds, seconds


class VirtualClock:
    """Begins at the time of day, so that times which the tested code takes itself fit to it."""

    def __init__(self, start: datetime | None = None) -> None:
        self._now = start or SystemClock().now()
        self._passed_s = 0.0

    def now(self) -> datetime:
        return self._now

    def seconds(self) -> float:
        return self._passed_s

    def advance(self, by: Seconds) -> None:
        """Let this time pass: seconds, or a timedelta."""
        by_s = seconds(by)
        if by_s < 0:
            raise ValueError("time does not run backwards; use travel_to for another date")
        self._now += timedelta(seconds=by_s)
        self._passed_s += by_s

    def travel_to(self, when: datetime) -> None:
        """Make it this time of day, also an earlier one."""
        if when.tzinfo is None:
            raise ValueError("travel_to needs a time zone, such as datetime(…, tzinfo=UTC)")
        self._passed_s += max((when - self._now).total_seconds(), 0.0)
        self._now = when
