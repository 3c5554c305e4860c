"""Runs a scenario several times on fresh stores and reports the medians."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from holdfast.bench.environment import environment
from holdfast.bench.ground import Ground
from holdfast.bench.load import Run
from holdfast.bench.report import Mark, Report, weaknesses


class Scenario(Protocol):
    """One thing to measure.  A run makes its own stores and leaves none behind."""

    @property
    def name(self) -> str: ...

    @property
    def tasks(self) -> int:
        """How many tasks are measured; 0: as many as the time allows."""
        ...

    @property
    def marks(self) -> Sequence[Mark]: ...

    @property
    def options(self) -> Mapping[str, Any]:
        """What was chosen apart from the number of tasks, for the report."""
        ...

    async def run(self, ground: Ground) -> Run: ...


async def measured(
    scenario: Scenario, ground: Ground, *, runs: int, say: Callable[[str], None]
) -> Report:
    """The report; without runs when the store is set up to lose commits."""
    async with ground.place() as place, place.store() as store:
        durability = await store.durability()
    done: list[Run] = []
    if not weaknesses(durability):
        for number in range(1, runs + 1):
            say(f"{scenario.name} on {ground.store}: run {number} of {runs}")
            done.append(await scenario.run(ground))
            if any(check.problem for check in done[-1].checks):
                break  # there will be no figures: every minute more is lost
    return Report(
        scenario=scenario.name,
        store=ground.store,
        tasks=scenario.tasks or sum(check.expected for run in done for check in run.checks),
        runs=done,
        marks=scenario.marks,
        environment=environment(durability, ground.folder),
        durability=durability,
        options=scenario.options,
    )
