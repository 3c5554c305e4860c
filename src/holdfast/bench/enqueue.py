"""`enqueue`: what it costs to add a task durably, alone, among a hundred callers, and in bulk."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.bench.bare import inserts_s
from holdfast.bench.ground import Ground, Place
from holdfast.bench.load import NO_PROFILE, TEXT, Load, Profile, Run, a_task, checked, drained
from holdfast.bench.report import Mark
from holdfast.clock import SystemClock

CALLERS = 100
SINGLES_SHARE = 3  # one caller adds a third of the tasks: each waits for a commit of its own
ROUNDS = 6  # in which both take turns; short ones would not let the bare insert fill its log


@dataclass(frozen=True, slots=True, kw_only=True)
class Enqueue:
    """One caller and the bare insert take turns, so that a busy disk slows both.

    Each turn opens what it needs and closes it again: an SQLite store that sees another writer
    makes room for it.  All tasks, those of the bare insert too, are then run by a node: what was
    answered is there.
    """

    tasks: int = 20_000
    profile: Profile = NO_PROFILE
    name = "enqueue"

    @property
    def marks(self) -> Sequence[Mark]:
        return (
            Mark(figure="single_ratio", at_least=0.8),
            Mark(figure="concurrent_rate", at_least=30_000),
        )

    @property
    def options(self) -> Mapping[str, Any]:
        return {"callers": CALLERS, "singles": self._singles}

    @property
    def _singles(self) -> int:
        """How many tasks one caller adds, in all rounds."""
        return max(self.tasks // SINGLES_SHARE // ROUNDS, 1) * ROUNDS

    async def run(self, ground: Ground) -> Run:
        async with ground.place() as place:
            async with place.store():
                pass  # SQLite makes its tables when it is opened for the first time
            single_s, bare_s = 0.0, 0.0
            each = self._singles // ROUNDS
            for number in range(ROUNDS):
                if number % 2:
                    single_s += await self._single_s(place, each)
                bare_s += await inserts_s(place, a_task(), each, clock=SystemClock())
                if not number % 2:
                    single_s += await self._single_s(place, each)
            rates = {
                "single_rate": self._singles / single_s,
                "bare_insert_rate": self._singles / bare_s,
                "single_ratio": bare_s / single_s,
            }
            return await self._many(place, rates, before=2 * (self._singles + ROUNDS))

    async def _single_s(self, place: Place, count: int) -> float:
        clock = SystemClock()
        async with (load := Load(place)).app:
            await load.noop.enqueue(TEXT)  # connects, and prepares
            started = clock.seconds()
            with self.profile.measuring():
                for _ in range(count):
                    await load.noop.enqueue(TEXT)
            return clock.seconds() - started

    async def _many(self, place: Place, rates: dict[str, float], *, before: int) -> Run:
        """The rates of many, and a look at all tasks, those that were added before too."""
        async with (load := Load(place)).app:
            await load.app.store()
            with self.profile.measuring():
                concurrent_rate, concurrent = await self._concurrent(load)
                bulk_rate = await self._bulk(load)
            async with load.app.node() as node:
                await drained(node, lambda: load.calls)
            expected = before + concurrent + self.tasks
            check = await checked(await load.app.store(), expected=expected, calls=load.calls)
        return Run(rates | {"concurrent_rate": concurrent_rate, "bulk_rate": bulk_rate}, (check,))

    async def _concurrent(self, load: Load) -> tuple[float, int]:
        """Each caller awaits its own enqueue before the next one; they share an event loop."""
        clock, each = SystemClock(), max(self.tasks // CALLERS, 1)

        async def caller() -> None:
            for _ in range(each):
                await load.noop.enqueue(TEXT)

        started = clock.seconds()
        async with asyncio.TaskGroup() as group:
            for _ in range(CALLERS):
                group.create_task(caller())
        return each * CALLERS / (clock.seconds() - started), each * CALLERS

    async def _bulk(self, load: Load) -> float:
        clock = SystemClock()
        started = clock.seconds()
        await load.fill(self.tasks)
        return self.tasks / (clock.seconds() - started)
