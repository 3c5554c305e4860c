"""Single tasks at a steady rate, each remembered by the moments of its commit and its start.

The moments are read from the machine's monotonic clock, which all its processes share.
"""

from __future__ import annotations

import asyncio

from holdfast.bench.ground import Place
from holdfast.bench.load import PAYLOAD_BYTES, QUEUE
from holdfast.clock import SystemClock

_NUMBER_DIGITS = 7
_AROUND = len(b"J1234") + len(b'{"number":,"text":""}') + _NUMBER_DIGITS
TEXT = "x" * (PAYLOAD_BYTES - _AROUND)
WARM_UPS = 10


class Knocker:
    """An app whose one kind notes when its handler starts."""

    def __init__(self, place: Place) -> None:
        self.app = place.app()
        self.started_s: dict[int, float] = {}
        self.calls = 0
        self._clock = SystemClock()

        @self.app.task(name="knock", queue=QUEUE)
        async def knock(number: int, text: str) -> None:
            self.started_s[number] = self._clock.seconds()
            self.calls += 1

        self._knock = knock

    async def knock(self, count: int, per_second: float) -> dict[int, float]:
        """Enqueue `count` tasks; answers when each was committed.

        Open loop: a task is enqueued at its time, however long the earlier ones take.  The first
        ones warm up connections and plans; their numbers are below 0.
        """
        committed_s: dict[int, float] = {}

        async def one(number: int) -> None:
            await self._knock.enqueue(number, TEXT)
            # Nothing but the commit and the hand-over to the bus lies before this line.
            committed_s[number] = self._clock.seconds()

        started = self._clock.seconds()
        async with asyncio.TaskGroup() as group:
            for place in range(count + WARM_UPS):
                await asyncio.sleep(started + place / per_second - self._clock.seconds())
                group.create_task(one(place - WARM_UPS))
        return committed_s
