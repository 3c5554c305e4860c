"""The role of `Search`: lists for people, on a thread that nothing else waits for."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from typing import Any

from holdfast.store import Filter
from holdfast.stores.sqlite import rows
from holdfast.stores.sqlite.rows import SECOND
from holdfast.stores.sqlite.statements import as_list, run
from holdfast.stores.sqlite.threads import Threads
from holdfast.task import FINAL, HOT, State, Task
from holdfast.telemetry.events import QueueSurvey


class SearchRole(Threads):
    async def find(self, filter: Filter) -> list[Task]:
        found: list[Task] = await self._browse(lambda db, now: _found(db, filter))
        return found

    async def counts(self) -> dict[State, int]:
        counted = await self._browse(lambda db, now: run(db, "counts"))
        return dict.fromkeys(State, 0) | {State(state): count for state, count in counted}

    async def survey(self, *, count_max: int = 10_000) -> list[QueueSurvey]:
        found: list[QueueSurvey] = await self._browse(
            lambda db, now: _surveyed(db, now, count_max, self.partitions)
        )
        return found

    async def unknown_queues(self) -> list[str]:
        found = await self._browse(lambda db, now: run(db, "unknown_queues"))
        return [queue for (queue,) in found]


def _surveyed(
    db: sqlite3.Connection, now: int, count_max: int, partitions: int
) -> list[QueueSurvey]:
    found = run(
        db,
        "survey",
        now=now,
        count_max=count_max,
        scan_max=10 * count_max,
        partitions=partitions,
    )
    return [_survey(row, now) for row in found]


def _survey(row: tuple[Any, ...], now: int) -> QueueSurvey:
    queue, waiting, submitted, processing, error, first_at, stuck = row
    age_s = 0.0 if first_at is None else max(0, now - first_at) / SECOND
    return QueueSurvey(queue, waiting, submitted, processing, error, age_s, stuck)


def _found(db: sqlite3.Connection, filter: Filter) -> list[Task]:
    params = {
        "states": _any_of([int(state) for state in filter.states]),
        "queues": _any_of(filter.queues),
        "kinds": _any_of(filter.kinds),
        "fairness_keys": _any_of(filter.fairness_keys),
        "after": filter.after or 0,
        "limit": filter.limit,
    }
    states = frozenset(filter.states or State)
    found: list[tuple[Any, ...]] = []
    if states & HOT == {State.ERROR}:
        found += run(db, "find_errors", **params)  # few among many: they have an index
    elif states & HOT:
        found += run(db, "find", **params)
    if states & FINAL:
        found += run(db, "find_archived", **params)
    found.sort(key=lambda row: row[0])
    return [rows.task(row) for row in found[: filter.limit]]


def _any_of(values: Collection[object]) -> str | None:
    return as_list(values) if values else None
