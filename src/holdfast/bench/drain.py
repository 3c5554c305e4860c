"""`drain`: how fast one node empties a queue, beside the ceiling of the store under it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.bench.ceiling import ceiling
from holdfast.bench.ground import Ground
from holdfast.bench.load import NO_PROFILE, Checked, Load, Profile, Run, checked, drained, settled
from holdfast.bench.peer import BATCH_TUNED, drained_rate
from holdfast.bench.report import Mark
from holdfast.clock import SystemClock

PEER_TASKS_MAX = 50_000  # a rate needs no more
SLOTS = 1_000  # held from before the grab until after the settle: large batches need many


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """Tasks are enqueued first; then a node starts, and the time runs until all are settled."""

    tasks: int = 50_000
    beside: str | None = None
    slots: int = SLOTS
    profile: Profile = NO_PROFILE
    name = "drain"

    @property
    def marks(self) -> Sequence[Mark]:
        marks = [
            Mark(figure="ratio", at_least=0.5),
            Mark(figure="rate", at_least=20_000, when=("ceiling_rate", 40_000)),
        ]
        if self.beside:
            marks.append(Mark(figure="peer_ratio", at_least=3))
        return marks

    @property
    def options(self) -> Mapping[str, Any]:
        peer = {"beside": self.beside, "peer_tasks": self._peer_tasks} if self.beside else {}
        return peer | {"slots": self.slots}

    @property
    def _settings(self) -> dict[str, Any]:
        return {"slots_async": self.slots}

    @property
    def _peer_tasks(self) -> int:
        return min(self.tasks, PEER_TASKS_MAX)

    async def run(self, ground: Ground) -> Run:
        ceiling_rate, ceiling_check = await self._ceiling(ground)
        rate, check = await self._rate(ground)
        figures: dict[str, float | None] = {
            "rate": rate,
            "ceiling_rate": ceiling_rate,
            "ratio": rate / ceiling_rate,
        }
        if self.beside:
            async with ground.schema() as place:
                shipped = await drained_rate(place, self._peer_tasks, clock=SystemClock())
            async with ground.schema() as place:
                tuned = await drained_rate(
                    place, self._peer_tasks, clock=SystemClock(), batch=BATCH_TUNED
                )
            figures |= {"peer_rate": shipped, "peer_ratio": rate / shipped}
            figures |= {"peer_tuned_rate": tuned, "peer_tuned_ratio": rate / tuned}
        return Run(figures, (ceiling_check, check))

    async def _rate(self, ground: Ground) -> tuple[float, Checked]:
        clock = SystemClock()
        async with ground.place() as place:
            async with (filling := Load(place)).app:
                await filling.fill(self.tasks)
            async with (load := Load(place)).app:
                await load.app.store()
                started = clock.seconds()
                with self.profile.measuring():
                    async with load.app.node(**self._settings) as node:
                        await load.called(self.tasks)
                        await settled(node)
                        took_s = clock.seconds() - started
                        await drained(node, lambda: load.calls)
                store = await load.app.store()
                check = await checked(store, expected=self.tasks, calls=load.calls)
        return self.tasks / took_s, check

    async def _ceiling(self, ground: Ground) -> tuple[float, Checked]:
        async with ground.place() as place:
            async with (filling := Load(place)).app:
                await filling.fill(self.tasks)
            async with place.store() as store:
                rate, settled = await ceiling(store, self.tasks, clock=SystemClock())
                return rate, await checked(store, expected=self.tasks, calls=settled)
