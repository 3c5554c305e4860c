"""`sustained`: producers and a node at full speed for a minute, also while vacuum cannot run.

The producers are a process of their own.  They add a batch for each batch that the node has run,
and stay a fixed number of tasks ahead: the node never waits, and the queue stays bounded.

Speeds of a shared machine drift by a third from one minute to the next, and a ratio of two
minutes drifts with them.  So the parts (free, pinned, pinned elsewhere) live side by side, each
with a store, a node and producers of its own, and take short turns; the others rest meanwhile,
with their snapshots held.  Only the turns that make up the last sixth of each part's time count.
On the server of `--url` a snapshot would hold back every part, so there each part takes all its
turns before the next begins.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from holdfast.bench.bare import pinned_snapshot, wal_bytes, writing_elsewhere
from holdfast.bench.child import Child, started
from holdfast.bench.ground import Ground, Place
from holdfast.bench.load import NO_PROFILE, Checked, Load, Profile, Run, checked, drained
from holdfast.bench.report import Mark
from holdfast.clock import SystemClock
from holdfast.node.node import Node

BATCH = 500
AHEAD = 20_000  # tasks that the producers are ahead of the node
TURN_S = 2.5
LAST = 6  # one turn in so many counts, the last ones: ten seconds of a minute
FEED_S = 0.005
Pin = Callable[[Ground, Place], AbstractAsyncContextManager[bool]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sustained:
    seconds: float = 60.0  # of each part
    ahead: int = AHEAD
    profile: Profile = NO_PROFILE
    tasks = 0  # as many as it takes
    name = "sustained"

    @property
    def marks(self) -> Sequence[Mark]:
        return (
            Mark(figure="pinned_ratio", at_least=0.85),
            Mark(figure="pinned_elsewhere_ratio", at_least=0.85),
        )

    @property
    def options(self) -> Mapping[str, Any]:
        return {"seconds": self.seconds, "ahead": self.ahead}

    async def run(self, ground: Ground) -> Run:
        pins = [_free, _pinned, *([] if ground.is_sqlite else [_pinned_elsewhere])]
        with self.profile.measuring():
            if ground.is_ours:
                parts = await self._side_by_side(ground, pins)
            else:
                parts = [part for pin in pins for part in await self._side_by_side(ground, [pin])]
        free, pinned, *rest = parts
        elsewhere = rest[0] if rest else None
        figures: dict[str, float | None] = {
            "rate": free.rate,
            "pinned_rate": pinned.rate,
            "pinned_ratio": pinned.rate / free.rate if free.rate else None,
            "pinned_elsewhere_rate": elsewhere.rate if elsewhere else None,
            "pinned_elsewhere_ratio": (
                elsewhere.rate / free.rate if elsewhere and free.rate else None
            ),
            "wal_bytes_per_task": free.wal_bytes_per_task,
        }
        return Run(figures, tuple(part.check for part in parts), _notes(ground, elsewhere))

    async def _side_by_side(self, ground: Ground, pins: Sequence[Pin]) -> list[_Part]:
        """Turns of all these parts, every other round in the opposite order."""
        async with AsyncExitStack() as stack:
            opened = [
                await stack.enter_async_context(_opened(ground, pin, self.ahead)) for pin in pins
            ]
            parts = [part for part in opened if part is not None]
            counted = max(1, round(self.seconds / TURN_S / LAST))
            turns = counted * LAST
            for turn in range(turns):
                for part in parts if turn % 2 else reversed(parts):
                    await part.turn(self.seconds / turns, is_counted=turn >= turns - counted)
            for part in parts:
                await part.end()
        return parts


class _Part:
    """A store under full load, in turns."""

    def __init__(self, place: Place, load: Load, node: Node, child: Child, *, ahead: int) -> None:
        self.check: Checked
        self._place, self._load, self._node, self._child = place, load, node, child
        self._ahead = ahead
        self._asked = 0  # batches
        self._clock = SystemClock()
        self._calls, self._took_s, self._wal = 0, 0.0, 0

    @property
    def rate(self) -> float:
        return self._calls / self._took_s

    @property
    def wal_bytes_per_task(self) -> float | None:
        return None if self._place.is_sqlite else self._wal / max(self._calls, 1)

    async def turn(self, seconds: float, *, is_counted: bool) -> None:
        """Full speed for so long; then wait, uncounted, for what the producers are ahead."""
        wal_from = await wal_bytes(self._place)
        from_s, calls_from = self._clock.seconds(), self._load.calls
        feeding = asyncio.create_task(self._keep_feeding())
        try:
            await asyncio.sleep(seconds)
            calls, took_s = self._load.calls - calls_from, self._clock.seconds() - from_s
            wal = await wal_bytes(self._place) - wal_from
        finally:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)
        if is_counted:
            self._calls += calls
            self._took_s += took_s
            self._wal += wal
        await self._load.called(self._asked * BATCH)

    async def end(self) -> None:
        """Stop the producers, run what is left, and look at the store."""
        expected = await self._child.answered()
        await drained(self._node, lambda: self._load.calls)
        store = await self._load.app.store()
        self.check = await checked(store, expected=expected, calls=self._load.calls)

    async def _keep_feeding(self) -> None:
        while True:
            due = (self._load.calls + self._ahead) // BATCH - self._asked
            if due > 0:
                self._child.go_on(due)
                self._asked += due
            await asyncio.sleep(FEED_S)


@asynccontextmanager
async def _opened(ground: Ground, pin: Pin, ahead: int) -> AsyncIterator[_Part | None]:
    """A part that is ready for its turns; None when its pin cannot be had."""
    async with ground.apart() as apart, apart.place() as place, (load := Load(place)).app:
        await load.app.store()
        async with pin(apart, place) as holds:
            if not holds:
                yield None
                return
            async with (
                started(place, "produce", batch=BATCH) as child,
                load.app.node() as node,
            ):
                yield _Part(place, load, node, child, ahead=ahead)


def _free(ground: Ground, place: Place) -> AbstractAsyncContextManager[bool]:
    return nullcontext(True)


def _pinned(ground: Ground, place: Place) -> AbstractAsyncContextManager[bool]:
    return pinned_snapshot(place)


def _pinned_elsewhere(ground: Ground, place: Place) -> AbstractAsyncContextManager[bool]:
    return writing_elsewhere(place, ground.elsewhere)


def _notes(ground: Ground, elsewhere: _Part | None) -> tuple[str, ...]:
    notes = []
    if not ground.is_ours:
        notes.append("one part after the other: the drift of the machine is in the ratios")
    if ground.is_sqlite:
        notes.append("SQLite has no other database beside it, and reuses its log: no such figures")
    elif elsewhere is None:
        notes.append("no other database of this server lets us in: pinned_elsewhere not measured")
    return tuple(notes)
