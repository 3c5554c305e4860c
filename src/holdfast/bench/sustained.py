"""`sustained`: producers and a node at full speed for a minute, also while vacuum cannot run.

The producers are a process of their own.  They add a batch for each batch that the node has run,
and stay a fixed number of tasks ahead: the node never waits, and the queue stays bounded.  Each
part has a fresh store; only its last sixth counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

from holdfast.bench.bare import pinned_snapshot, wal_bytes, writing_elsewhere
from holdfast.bench.child import Child, started
from holdfast.bench.ground import Ground, Place
from holdfast.bench.load import NO_PROFILE, Checked, Load, Profile, Run, checked, drained
from holdfast.bench.report import Mark
from holdfast.clock import SystemClock

BATCH = 500
AHEAD = 20_000  # tasks that the producers are ahead of the node
LAST = 1 / 6  # of the time counts: ten seconds of a minute
FEED_S = 0.005


class _Part(NamedTuple):
    """One stretch at full speed."""

    rate: float
    wal_bytes_per_task: float | None
    check: Checked


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
        async with ground.place() as place:
            free = await self._part(place, nullcontext())
        async with ground.place() as place:
            pinned = await self._part(place, pinned_snapshot(place))
        elsewhere = await self._elsewhere(ground)
        parts = [free, pinned, *([elsewhere] if elsewhere else [])]
        figures: dict[str, float | None] = {
            "rate": free.rate,
            "pinned_rate": pinned.rate,
            "pinned_ratio": pinned.rate / free.rate,
            "pinned_elsewhere_rate": elsewhere and elsewhere.rate,
            "pinned_elsewhere_ratio": elsewhere and elsewhere.rate / free.rate,
            "wal_bytes_per_task": free.wal_bytes_per_task,
        }
        return Run(figures, tuple(part.check for part in parts), self._notes(ground, elsewhere))

    def _notes(self, ground: Ground, elsewhere: _Part | None) -> tuple[str, ...]:
        if elsewhere is not None:
            return ()
        if ground.store == "sqlite":
            return ("SQLite has no other database beside it, and reuses its log: no such figures",)
        return ("no other database of this server lets us in: pinned_elsewhere is not measured",)

    async def _elsewhere(self, ground: Ground) -> _Part | None:
        if ground.store == "sqlite":
            return None
        async with (
            ground.place() as place,
            writing_elsewhere(place, ground.elsewhere) as is_pinned,
        ):
            return await self._part(place, nullcontext()) if is_pinned else None

    async def _part(self, place: Place, pin: AbstractAsyncContextManager[None]) -> _Part:
        async with (load := Load(place)).app:
            await load.app.store()
            async with pin, started(place, "produce", batch=BATCH) as child:
                with self.profile.measuring():
                    async with load.app.node() as node:
                        rate, wal = await self._measured(place, load, child)
                        expected = await child.answered()
                        await drained(node, lambda: load.calls)
            store = await load.app.store()
            check = await checked(store, expected=expected, calls=load.calls)
        return _Part(rate, wal, check)

    async def _measured(self, place: Place, load: Load, child: Child) -> tuple[float, float | None]:
        """The rate of the last sixth, and the log that it took."""
        clock = SystemClock()
        feeding = asyncio.create_task(self._keep_feeding(load, child))
        try:
            await asyncio.sleep(self.seconds * (1 - LAST))
            wal_from, from_s, calls_from = await wal_bytes(place), clock.seconds(), load.calls
            await asyncio.sleep(self.seconds * LAST)
            calls, took_s = load.calls - calls_from, clock.seconds() - from_s
            wal_to = await wal_bytes(place)
        finally:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)
        wal = None if wal_from is None or wal_to is None else (wal_to - wal_from) / max(calls, 1)
        return calls / took_s, wal

    async def _keep_feeding(self, load: Load, child: Child) -> None:
        asked = 0
        while True:
            due = (load.calls + self.ahead) // BATCH - asked
            if due > 0:
                child.go_on(due)
                asked += due
            await asyncio.sleep(FEED_S)
