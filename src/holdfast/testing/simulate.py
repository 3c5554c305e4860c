"""Virtual time: a loop on which waiting costs nothing.

`simulate(main)` runs `main(world)` on an event loop whose time is a number.  As long as something
can run, time stands still; when everybody waits, it jumps to the earliest alarm:

    ready callbacks ──▶ run them          t stays
    nothing ready   ──▶ next alarm at u   t = u
    no alarm at all ──▶ Deadlock

An hour of leases and retries is over in milliseconds, and in the same order every time.  Only what
stays on the loop is simulated: threads, processes and sockets know nothing of this time, so stores
run inline here.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

T = TypeVar("T")
MORNING = datetime(2030, 1, 1, tzinfo=UTC)


class Deadlock(AssertionError):
    """Everybody waits and no alarm is set, so nothing can ever happen again."""


class World(asyncio.SelectorEventLoop):
    """The loop, and at the same time the `Clock` to hand to simulated parts."""

    def __init__(self, morning: datetime = MORNING) -> None:
        self._morning = morning
        self._passed_s = 0.0
        super().__init__(_Jumping(self))

    def time(self) -> float:
        return self._passed_s

    def now(self) -> datetime:
        return self._morning + timedelta(seconds=self._passed_s)

    def seconds(self) -> float:
        return self._passed_s

    def jump(self, by_s: float) -> None:
        """Let time pass at once, as a machine that was suspended sees it."""
        assert by_s >= 0, "time does not run backwards"
        self._passed_s += by_s


class _Jumping(selectors.SelectSelector):
    """Asked to wait, it moves the time of its world instead."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if found:
            return found
        if timeout is None:
            raise Deadlock("everybody waits and no alarm is set")
        if timeout > 0:
            self._world.jump(timeout)
        return found


def simulate(main: Callable[[World], Coroutine[Any, Any, T]], *, morning: datetime = MORNING) -> T:
    """Run `main` to its end in virtual time; `Deadlock` when it can never end."""
    with asyncio.Runner(loop_factory=lambda: World(morning)) as runner:
        world = runner.get_loop()
        assert isinstance(world, World)
        return runner.run(main(world))
