"""The bus of one process: publisher and owner share memory, nothing has to travel."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from holdfast.bus import Hear
from holdfast.buses.listeners import UNSENT_MAX, Listeners
from holdfast.task import Trigger
from holdfast.telemetry.events import Events, TriggersPublished


class LocalBus:
    """Calls the listeners of this process; what none of them owns is dropped.

    If the process dies, triggers on their way from one thread to another die with it: arrivals
    find their tasks.
    """

    def __init__(self, *, events: Events, unsent_max: int = UNSENT_MAX) -> None:
        self._events = events
        self._listeners = Listeners(_dropped, events=events, unsent_max=unsent_max)

    def publish(self, triggers: Sequence[Trigger]) -> None:
        if not triggers:
            return
        self._listeners.offer(triggers)
        if self._events.wanted:
            self._events.emit(TriggersPublished(len(triggers)))

    async def subscribe(self, queues: Collection[str], hear: Hear) -> None:
        self._listeners.add(queues, hear)

    async def unsubscribe(self, hear: Hear) -> None:
        self._listeners.remove(hear)

    async def close(self) -> None:
        self._listeners.clear()


def _dropped(queue: str, triggers: Sequence[Trigger]) -> None:
    """Nobody in this process owns them, and there is nobody else to tell."""
