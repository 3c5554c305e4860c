"""The time of day.  Waiting is asyncio's business; telling the time is ours."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """The time of day, with a time zone."""
        ...

    def seconds(self) -> float:
        """Seconds that only ever grow, for measuring how long something took."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def seconds(self) -> float:
        return time.monotonic()
