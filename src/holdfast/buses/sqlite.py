"""The bus beside one SQLite file: memory within the process, `data_version` between processes.

Triggers of this process reach its listeners directly.  Another process has no channel to us but
the file: its commits change `data_version`, which is looked at every 5 to 10 ms while somebody
listens, and rings the doorbell.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence

from holdfast.bus import Hear
from holdfast.buses.listeners import UNSENT_MAX, Listeners
from holdfast.task import Trigger
from holdfast.telemetry.events import Events, StoreFailed, TriggersPublished

LOOK_S = 0.005  # after a quiet look
LOOK_AGAIN_S = 0.010  # after a look that rang: a stream of commits is worth one read for several
BACK_OFF_S = 1.0  # after a look that failed


class SQLiteBus:
    """Rings when the file was changed by others.

    `data_version` answers the pragma of that name; it must not wait.  Asked on a connection that
    writes, it leaves out that connection's own commits, whose triggers come directly anyway.
    """

    def __init__(
        self, data_version: Callable[[], int], *, events: Events, unsent_max: int = UNSENT_MAX
    ) -> None:
        self._data_version = data_version
        self._events = events
        self._listeners = Listeners(_dropped, events=events, unsent_max=unsent_max)
        self._looking: asyncio.Task[None] | None = None

    def publish(self, triggers: Sequence[Trigger]) -> None:
        if not triggers:
            return
        self._listeners.offer(triggers)
        if self._events.wanted:
            self._events.emit(TriggersPublished(len(triggers)))

    async def subscribe(self, queues: Collection[str], hear: Hear) -> None:
        self._listeners.add(queues, hear)
        if self._looking is None:
            # The first look is taken before we return: whatever commits later rings.
            self._looking = asyncio.create_task(self._look(self._version(None)))

    async def unsubscribe(self, hear: Hear) -> None:
        self._listeners.remove(hear)
        if not self._listeners.queues:
            await self._stop()

    async def close(self) -> None:
        self._listeners.clear()
        await self._stop()

    async def _stop(self) -> None:
        looking, self._looking = self._looking, None
        if looking is not None:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

    async def _look(self, seen: int | None) -> None:
        wait_s = LOOK_S
        while True:
            await asyncio.sleep(wait_s)
            found = self._version(seen)
            if found is None:
                wait_s, seen = BACK_OFF_S, None
            elif found == seen:
                wait_s = LOOK_S
            else:
                wait_s, seen = LOOK_AGAIN_S, found
                self._ring()

    def _version(self, seen: int | None) -> int | None:
        """The file's version, or None: it could not be read, so the next look rings."""
        try:
            return self._data_version()
        except Exception as error:
            if seen is not None:
                self._events.emit(StoreFailed("data_version", str(error)))
            return None

    def _ring(self) -> None:
        for queue in self._listeners.queues:
            self._listeners.hear(queue, ())


def _dropped(queue: str, triggers: Sequence[Trigger]) -> None:
    """Another process may own them; it sees the commit by itself."""
