"""The sequencer's hand: at each tick it writes one record of a ring's log, if the turn is ours.

    tick ─▶ read the latest ─▶ is there something to write? ─▶ is it our turn? ─▶ compare-and-set

What a record holds is not known here: `wanted` gives its body when there is something new.  The
order of all changes will be such a log; its ranges are the bodies.

When the coordinator is away nothing is written, and nothing is believed to be: after an answer that
did not come, the latest record is read before anything else.  Ticks go on by themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection

from holdfast.clock import Clock
from holdfast.ids import NodeId
from holdfast.ring import KEPT, SPACING, RingRecord, Turn
from holdfast.store import Rings
from holdfast.telemetry.events import Events, StoreFailed

Wanted = Callable[[RingRecord], Awaitable[bytes | None]]
"""Asked with the latest record: the body of the next one, or None while there is nothing new."""

TICK_S = 1.0
EARLY = 0.1  # of a tick: loops are never exact, and a tick that is missed costs a whole one
ROTATE_EVERY = 100  # records between two rotations


class Sequencer:
    """One node's part in writing a log.  Safe with any number of them, whatever their clocks."""

    def __init__(
        self,
        ring: str,
        node: NodeId,
        *,
        log: Rings,
        alive: Callable[[], Collection[NodeId]],
        wanted: Wanted,
        clock: Clock,
        events: Events,
        tick_s: float = TICK_S,
        spacing: int = SPACING,
        kept: int = KEPT,
    ) -> None:
        self._ring = ring
        self._log = log
        self._alive = alive
        self._wanted = wanted
        self._clock = clock
        self._events = events
        self._tick_s = tick_s
        self._kept = kept
        self.turn = Turn(node, spacing=spacing)

    async def keep(self) -> None:
        """Tick for ever; a failure of the coordinator is told and outlived."""
        loop = asyncio.get_running_loop()
        next_at = loop.time()
        while True:
            try:
                await self.tick()
            except Exception as error:
                self._events.emit(StoreFailed("tick", str(error)))
            # Ticks do not drift by the time that they take; those that were slept through are gone.
            next_at = max(next_at + self._tick_s, loop.time())
            await asyncio.sleep(next_at - loop.time())

    async def tick(self) -> RingRecord | None:
        """One look; answers the record that it wrote, if it did."""
        turn = self.turn
        turn.read(await self._log.ring_latest(self._ring), self._now())
        body = await self._wanted(turn.latest)
        if body is None:
            turn.empty()
            return None
        turn.wanted(self._now())
        due = turn.due(self._alive())
        if due is None or self._now() + EARLY < due:
            return None
        record = turn.following(body)
        try:
            is_written = await self._log.ring_append(self._ring, record)
        except BaseException:
            turn.lost_reply(self._now())
            raise
        if not is_written:
            turn.refused(self._now())
            return None
        turn.written(record, self._now())
        if record.number % ROTATE_EVERY == 0:
            await self._log.ring_rotate(self._ring, kept=self._kept)
        return record

    def _now(self) -> float:
        return self._clock.seconds() / self._tick_s
