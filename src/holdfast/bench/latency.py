"""`latency`: from the commit of a task to the start of its handler, on a node that is idle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from holdfast.bench.child import started
from holdfast.bench.ground import Ground, Place
from holdfast.bench.knocking import WARM_UPS, Knocker
from holdfast.bench.load import NO_PROFILE, Profile, Run, checked, drained
from holdfast.bench.report import Mark

PER_SECOND = 50.0
P50_MS_MAX, P50_ACROSS_MS_MAX = 2.0, 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Fifty tasks a second, each enqueued at its time; `across`: by another process."""

    tasks: int = 1_000
    across: bool = False
    profile: Profile = NO_PROFILE
    name = "latency"

    @property
    def marks(self) -> Sequence[Mark]:
        return (Mark(figure="p50_ms", at_most=P50_ACROSS_MS_MAX if self.across else P50_MS_MAX),)

    @property
    def options(self) -> Mapping[str, Any]:
        return {"across": self.across, "per_second": PER_SECOND}

    async def run(self, ground: Ground) -> Run:
        async with ground.place() as place, (knocker := Knocker(place)).app:
            async with knocker.app.node() as node:
                with self.profile.measuring():
                    committed_s = await self._knocked(place, knocker)
                    await drained(node, lambda: knocker.calls)
            store = await knocker.app.store()
            check = await checked(store, expected=self.tasks + WARM_UPS, calls=knocker.calls)
        waits_ms = sorted(
            (knocker.started_s[number] - at_s) * 1_000
            for number, at_s in committed_s.items()
            if number >= 0 and number in knocker.started_s
        )
        figures: dict[str, float | None] = {
            "p50_ms": median(waits_ms),
            "p99_ms": waits_ms[int(len(waits_ms) * 0.99)],
            "max_ms": waits_ms[-1],
        }
        return Run(figures, (check,))

    async def _knocked(self, place: Place, knocker: Knocker) -> dict[int, float]:
        if not self.across:
            return await knocker.knock(self.tasks, PER_SECOND)
        async with started(place, "knock", count=self.tasks, per_second=PER_SECOND) as child:
            return {int(number): at_s for number, at_s in (await child.answered()).items()}
