"""`timers`: how late waiting tasks start while a million others wait, and how fast many are woken.

Three parts on one store with `waiting` tasks that are due in a day: single tasks, due at moments
spread over some seconds, whose lateness is measured from their due time in the store to the start
of their handler; a burst, all due at the same moment; and the memory of the node meanwhile.  The
same on a store with `small` waiting tasks gives the memory to compare with.  The waiting tasks
come from a process of their own, so that the memory is the node's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median
from typing import Any

from holdfast.bench.backlog import Memory
from holdfast.bench.child import started
from holdfast.bench.ground import Ground, Place
from holdfast.bench.load import BULK, QUEUE, STALL_S, Checked, Run
from holdfast.bench.report import Mark
from holdfast.clock import SystemClock
from holdfast.store import Store
from holdfast.task import State

A_DAY_S = 86_400.0
AHEAD_S = 2.0  # before the first one is due, all are enqueued
PER_SECOND = 100.0
BURST_AHEAD_S, ENQUEUED_PER_S = 1.0, 3_000  # a burst is enqueued before it is due
GROWN_MB_MAX = 30


class Alarms:
    """An app whose one kind notes when its handler starts."""

    def __init__(self, place: Place) -> None:
        self.app = place.app()
        self.started_at: dict[int, datetime] = {}
        self.clock = SystemClock()

        @self.app.task(name="alarm", queue=QUEUE)
        async def alarm(number: int) -> None:
            self.started_at[number] = self.clock.now()

        self.alarm = alarm

    async def rung(self, count: int) -> None:
        """Wait until so many have started, or until nothing happens any more."""
        seen, since = -1, self.clock.seconds()
        while len(self.started_at) < count and self.clock.seconds() - since < STALL_S:
            if len(self.started_at) != seen:
                seen, since = len(self.started_at), self.clock.seconds()
            await asyncio.sleep(0.01)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timers:
    tasks: int = 1_000  # single ones
    burst: int = 20_000
    small: int = 10_000
    waiting: int = 1_000_000
    name = "timers"

    @property
    def marks(self) -> Sequence[Mark]:
        return (
            Mark(figure="p50_ms", at_most=20),
            Mark(figure="p99_ms", at_most=200),
            Mark(figure="early", at_most=0),
            Mark(figure="wake_rate", at_least=5_000),
            Mark(figure="rss_grown_mb", at_most=GROWN_MB_MAX),
        )

    @property
    def options(self) -> Mapping[str, Any]:
        return {"small": self.small, "waiting": self.waiting, "burst": self.burst}

    async def run(self, ground: Ground) -> Run:
        few, few_check, _ = await self._measured(ground, self.small)
        figures, check, notes = await self._measured(ground, self.waiting)
        figures["rss_mb_10k"] = few["rss_mb"]
        figures["rss_mb_1m"] = figures.pop("rss_mb")
        figures["rss_grown_mb"] = max(0.0, figures["rss_mb_1m"] - few["rss_mb"])
        return Run(figures, (few_check, check), notes)

    async def _measured(
        self, ground: Ground, waiting: int
    ) -> tuple[dict[str, float], Checked, tuple[str, ...]]:
        memory = Memory()
        async with ground.place() as place:
            async with started(place, "fill", count=waiting, delay_s=A_DAY_S) as child:
                await child.answered()
            async with (alarms := Alarms(place)).app, memory.watched():
                store = await alarms.app.store()
                async with alarms.app.node():
                    late_s = await self._late_s(alarms, store)
                    wake_rate = await self._wake_rate(alarms)
                check = await self._checked(store, alarms, waiting)
        figures = {
            "p50_ms": median(late_s) * 1_000,
            "p99_ms": late_s[int(len(late_s) * 0.99)] * 1_000,
            "early": float(sum(one < 0 for one in late_s)),
            "wake_rate": wake_rate,
            "rss_mb": memory.highest_mb,
        }
        return figures, check, ()

    async def _late_s(self, alarms: Alarms, store: Store) -> list[float]:
        handles = await asyncio.gather(
            *(
                alarms.alarm.options(delay=AHEAD_S + number / PER_SECOND).enqueue(number)
                for number in range(self.tasks)
            )
        )
        found = await store.get([handle.id for handle in handles])
        due_at = {number: found[handle.id].due_at for number, handle in enumerate(handles)}
        await alarms.rung(self.tasks)
        return sorted(
            (alarms.started_at[number] - at).total_seconds()
            for number, at in due_at.items()
            if at is not None and number in alarms.started_at
        )

    async def _wake_rate(self, alarms: Alarms) -> float:
        """Tasks a second from the moment at which all are due until the last one has started."""
        due_at = alarms.clock.now() + timedelta(seconds=BURST_AHEAD_S + self.burst / ENQUEUED_PER_S)
        for first in range(0, self.burst, BULK):
            delay_s = (due_at - alarms.clock.now()).total_seconds()
            numbers = range(first, min(first + BULK, self.burst))
            await alarms.alarm.options(delay=max(delay_s, 0.0)).enqueue_many(
                [(self.tasks + number,) for number in numbers]
            )
        await alarms.rung(self.tasks + self.burst)
        last_at = max(alarms.started_at.values())
        return self.burst / max((last_at - due_at).total_seconds(), 1e-3)

    async def _checked(self, store: Store, alarms: Alarms, waiting: int) -> Checked:
        counts = await store.counts()
        left = counts.pop(State.WAITING, 0) - waiting
        done = counts.pop(State.DONE, 0)
        others = {state.name: count for state, count in counts.items() if count}
        if left:
            others["WAITING"] = left
        return Checked(self.tasks + self.burst, len(alarms.started_at), done, others)
