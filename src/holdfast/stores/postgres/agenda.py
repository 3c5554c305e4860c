"""The duties' role: what is due, what was lost, what is old."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from holdfast.clock import Clock
from holdfast.ids import NodeId
from holdfast.store import Due, Overdue, Running
from holdfast.stores.postgres.cleaning import cleaned
from holdfast.stores.postgres.connection import Database
from holdfast.task import TaskId, Trigger

LOOK_BACK = timedelta(seconds=10)  # how late a delayed task may commit and still be seen at once
FULL_LOOK_S = 60.0  # after that, what was committed later than LOOK_BACK is found as well
_EARLIEST = datetime(1, 1, 1, tzinfo=UTC)


class LowWater(NamedTuple):
    """Everything due before `at` was submitted, as of a full look at `looked_s`."""

    at: datetime
    looked_s: float


class PostgresAgenda:
    """`holdfast.store.Agenda`: the promises are written there."""

    _database: Database
    _clock: Clock
    _low_water: LowWater | None

    async def submit_due(self, *, limit: int) -> Due:
        low, now_s = self._low_water, self._clock.seconds()
        if low is None or now_s - low.looked_s >= FULL_LOOK_S:
            low = LowWater(_EARLIEST, now_s)
        rows = await self._database.write("submit_due", {"from": low.at, "limit": limit})
        now, next_due_at, ripe = rows[0][:3]
        if ripe < limit:
            # The dead entries below are not walked again until the next full look.
            low = low._replace(at=max(low.at, now - LOOK_BACK))
        self._low_water = low
        triggers = [Trigger._make(row[3:14]) for row in rows if row[3] is not None]
        return Due(triggers, next_due_at)

    async def submit_overdue(self, *, deadline_s: float, limit: int) -> list[Trigger]:
        params = {"deadline_s": deadline_s, "limit": limit}
        rows = await self._database.write("submit_overdue", params)
        return [Trigger._make(row[:-1]) for row in rows if not row[-1]]

    async def overdue(self, *, limit: int) -> list[Overdue]:
        return [Overdue._make(r) for r in await self._database.read("overdue", {"limit": limit})]

    async def resume_overdue(
        self, tasks: Mapping[TaskId, int], *, deliveries_max: int
    ) -> list[Trigger]:
        params = _named(tasks) | {"deliveries_max": deliveries_max}
        rows = await self._database.write("resume_overdue", params) if tasks else []
        return [Trigger._make(row) for row in rows if row[-1] is not None]

    async def postpone(self, tasks: Mapping[TaskId, int], *, deadline_s: float) -> None:
        if tasks:
            await self._database.write("postpone", _named(tasks) | {"deadline_s": deadline_s})

    async def resume_lost(
        self, nodes: Collection[NodeId], *, deliveries_max: int, limit: int
    ) -> list[Trigger]:
        if not nodes:
            return []
        params = {"nodes": sorted(nodes), "deliveries_max": deliveries_max, "limit": limit}
        # What they hold of limits is given back only when none of their tasks is PROCESSING.
        await self._database.write("end_shares", {"nodes": sorted(nodes)})
        rows = await self._database.write("resume_lost", params)
        await self._database.write("drop_shares", {"nodes": sorted(nodes)})
        return [Trigger._make(row) for row in rows if row[-1] is not None]

    async def running_of(self, node: NodeId) -> list[Running]:
        return [Running._make(r) for r in await self._database.read("running_of", {"node": node})]

    async def moved_on(self, node: NodeId, held: Mapping[TaskId, int]) -> list[TaskId]:
        if not held:
            return []
        params = {"node": node, "ids": list(held), "versions": list(held.values())}
        return [TaskId(row[0]) for row in await self._database.read("moved_on", params)]

    async def park(self, tasks: Mapping[TaskId, int], error: str) -> list[TaskId]:
        if not tasks:
            return []
        params = _named(tasks) | {"error": error}
        return [TaskId(row[0]) for row in await self._database.write("park", params)]

    async def clean(self, *, keep_days: float, limit: int) -> int:
        return await cleaned(self._database, keep_days=keep_days, limit=limit)


def _named(tasks: Mapping[TaskId, int]) -> dict[str, Any]:
    """In one order for everybody, so that two statements never wait for each other."""
    ids = sorted(tasks)
    return {"ids": ids, "versions": [tasks[id] for id in ids]}
