"""`backlog`: whether a task costs more when a million wait behind it, and what memory that takes.

A run on `small` tasks of backlog enqueues those and the timed ones together, so that while the
first ones are timed, never fewer than `small` wait; a run on `large` has that many in all.  Both
time the same number of tasks, from the node's start, its takeover included.  The tasks come from
a process of their own, so that the memory is the node's.  Afterwards everything is drained.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from holdfast.bench.child import started
from holdfast.bench.environment import rss_mb
from holdfast.bench.ground import Ground
from holdfast.bench.load import NO_PROFILE, Checked, Load, Profile, Run, checked, drained
from holdfast.bench.report import Mark
from holdfast.clock import SystemClock

LOOK_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    tasks: int = 20_000  # timed
    small: int = 10_000
    large: int = 1_000_000
    profile: Profile = NO_PROFILE
    name = "backlog"

    @property
    def marks(self) -> Sequence[Mark]:
        return (Mark(figure="cost_ratio", at_most=1.25), Mark(figure="rss_mb", at_most=300))

    @property
    def options(self) -> Mapping[str, Any]:
        return {"small": self.small, "large": self.large}

    async def run(self, ground: Ground) -> Run:
        memory = Memory()
        small_s, small_check = await self._timed(ground, self.tasks + self.small, Memory())
        large_s, large_check = await self._timed(ground, max(self.large, self.tasks), memory)
        figures: dict[str, float | None] = {
            "cost_ratio": large_s / small_s,
            "rss_mb": memory.highest_mb,
            "small_us": small_s / self.tasks * 1e6,
            "large_us": large_s / self.tasks * 1e6,
        }
        return Run(figures, (small_check, large_check))

    async def _timed(self, ground: Ground, filled: int, memory: Memory) -> tuple[float, Checked]:
        """How long the first tasks take when so many are there at the start."""
        clock = SystemClock()
        async with ground.place() as place:
            async with started(place, "fill", count=filled) as child:
                await child.answered()
            async with (load := Load(place)).app, memory.watched():
                await load.app.store()
                started_s = clock.seconds()
                with self.profile.measuring():
                    async with load.app.node() as node:
                        await load.called(self.tasks)
                        took_s = clock.seconds() - started_s
                        await drained(node, lambda: load.calls)
                store = await load.app.store()
                return took_s, await checked(store, expected=filled, calls=load.calls)


class Memory:
    """The most memory that this process was seen to use."""

    def __init__(self) -> None:
        self.highest_mb = 0.0

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Look every now and then while the block lasts."""
        looking = asyncio.create_task(self._keep_looking())
        try:
            yield
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
            self._look()

    async def _keep_looking(self) -> None:
        while True:
            self._look()
            await asyncio.sleep(LOOK_S)

    def _look(self) -> None:
        self.highest_mb = max(self.highest_mb, rss_mb())
