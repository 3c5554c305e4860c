"""Schedules: one row each, moved on by whoever fires them."""

from __future__ import annotations

from collections.abc import Collection

from holdfast.schedule import Fire, Listed, Schedule, columns_of, schedule_of
from holdfast.stores.postgres.connection import Database, Session
from holdfast.stores.postgres.enqueueing import enqueue_many
from holdfast.task import Enqueued


class PostgresTimetable:
    """`holdfast.schedule.Timetable`: the promises are written there."""

    _database: Database

    async def schedules(self, names: Collection[str] = ()) -> Listed:
        rows = await self._database.read("schedules", {"names": sorted(names)})
        return Listed(rows[0][0], [schedule_of(row[1:]) for row in rows if row[1] is not None])

    async def due_schedules(self, *, limit: int) -> Listed:
        rows = await self._database.read("due_schedules", {"limit": limit})
        due = [schedule_of(row[2:]) for row in rows if row[2] is not None]
        return Listed(rows[0][0], due, rows[0][1])

    async def put_schedule(self, schedule: Schedule) -> bool:
        return bool(await self._database.write("put_schedule", columns_of(schedule)))

    async def fire_schedule(self, fire: Fire) -> list[Enqueued] | None:
        async def work(session: Session) -> list[Enqueued] | None:
            # A second node waits here for the first, and finds another version.
            if not await session.run("fire_schedule", fire._asdict()):
                return None
            return await enqueue_many(session, fire.tasks) if fire.tasks else []

        return await self._database.together(work)

    async def drop_schedule(self, name: str) -> bool:
        return bool(await self._database.write("drop_schedule", {"name": name}))
