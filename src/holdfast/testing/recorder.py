"""Events, heard by a test: it waits for what happened instead of sleeping."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

from holdfast.telemetry.events import Events

E = TypeVar("E")


class Recorder:
    """Hears every event, from whichever thread, and keeps them in the order of their arrival.

    The event of the past counts too: `until` answers at once when it was heard before.
    """

    def __init__(self, events: Events) -> None:
        self._heard: list[object] = []
        self._guard = threading.Lock()
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self._leave = events.listen(self._hear)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def heard(self) -> list[object]:
        """Everything heard so far."""
        with self._guard:
            return list(self._heard)

    def all(self, expected: type[E], *, where: Callable[[E], bool] = lambda _: True) -> list[E]:
        """The events of one type heard so far."""
        return [event for event in self.heard if isinstance(event, expected) and where(event)]

    async def until(
        self,
        expected: type[E],
        *,
        where: Callable[[E], bool] = lambda _: True,
        count: int = 1,
        timeout_s: float = 5.0,
    ) -> E:
        """The event that makes `count` of them, as soon as it is heard.

        Raises `TimeoutError` with what was heard instead.
        """
        more = asyncio.Event()
        waiting = (asyncio.get_running_loop(), more)
        with self._guard:
            self._waiting.append(waiting)
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    # Cleared before looking: what is heard after the look sets it again.
                    more.clear()
                    if len(found := self.all(expected, where=where)) >= count:
                        return found[count - 1]
                    await more.wait()
        except TimeoutError as error:
            raise TimeoutError(self._instead(expected, count, timeout_s)) from error
        finally:
            with self._guard:
                self._waiting.remove(waiting)

    def close(self) -> None:
        """Hear no more.  What was heard stays."""
        self._leave()
        self._leave = lambda: None

    def _hear(self, event: object) -> None:
        with self._guard:
            self._heard.append(event)
            waiting = list(self._waiting)
        for loop, more in waiting:
            # A loop may have been closed since: then nobody waits there any more.
            if not loop.is_closed():
                loop.call_soon_threadsafe(more.set)

    def _instead(self, expected: type[object], count: int, timeout_s: float) -> str:
        last = "\n".join(f"  {event}" for event in self.heard[-20:])
        wanted = expected.__name__ if count == 1 else f"{count} of {expected.__name__}"
        return f"no {wanted} within {timeout_s} s; the last events were:\n{last or '  none'}"
