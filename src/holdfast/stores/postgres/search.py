"""The role of CLI and gateways: lists and counts, with the planner as the server has it."""

from __future__ import annotations

from holdfast.store import Filter
from holdfast.stores.postgres.connection import Database
from holdfast.stores.postgres.rows import task_of
from holdfast.task import FINAL, HOT, State, Task
from holdfast.telemetry.events import QueueSurvey


class PostgresSearch:
    """`holdfast.store.Search`: the promises are written there."""

    _database: Database
    _partitions: int

    async def find(self, filter: Filter) -> list[Task]:
        states = set(filter.states) or set(State)
        params = {
            "after": filter.after or 0,
            "hot_states": sorted(states & HOT),
            "final_states": sorted(states & FINAL),
            "queues": list(filter.queues),
            "kinds": list(filter.kinds),
            "fairness_keys": list(filter.fairness_keys),
            "limit": filter.limit,
        }
        rows = await self._database.read("find", params, plain=True)
        return [task_of(row) for row in rows]

    async def counts(self) -> dict[State, int]:
        counts = dict.fromkeys(State, 0)
        for state, count in await self._database.read("counts", {}, plain=True):
            counts[State(state)] += count
        return counts

    async def survey(self, *, count_max: int = 10_000) -> list[QueueSurvey]:
        params = {
            "partitions": self._partitions,
            "count_max": count_max,
            "processing_max": 10 * count_max,
            "waiting_max": 10 * count_max,
        }
        return [QueueSurvey(*row) for row in await self._database.read("survey", params)]

    async def unknown_queues(self) -> list[str]:
        return [queue for (queue,) in await self._database.read("unknown_queues", {})]
