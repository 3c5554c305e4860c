"""The role of `Timetable`: one row for each schedule, moved on by whoever fires it."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from typing import Any

from holdfast.schedule import Fire, Listed, Schedule, columns_of, schedule_of
from holdfast.stores.sqlite import enqueue
from holdfast.stores.sqlite.rows import micros, moment, moment_or_none
from holdfast.stores.sqlite.statements import as_list, run
from holdfast.stores.sqlite.threads import Threads
from holdfast.task import Enqueued


class TimetableRole(Threads):
    async def schedules(self, names: Collection[str] = ()) -> Listed:
        wanted = as_list(names) if names else None

        def work(db: sqlite3.Connection, now: int) -> Listed:
            return Listed(
                moment(now), [_schedule(row) for row in run(db, "schedules", names=wanted)]
            )

        found: Listed = await self._read(work)
        return found

    async def due_schedules(self, *, limit: int) -> Listed:
        def work(db: sqlite3.Connection, now: int) -> Listed:
            due = [_schedule(row) for row in run(db, "schedules_due", now=now, limit=limit)]
            ((next_at,),) = run(db, "schedule_next", now=now)
            return Listed(moment(now), due, moment_or_none(next_at))

        found: Listed = await self._read(work)
        return found

    async def put_schedule(self, schedule: Schedule) -> bool:
        params = _times(columns_of(schedule))
        name = "schedule_put" if schedule.version else "schedule_make"
        rows = await self._write(
            lambda db, now: run(db, name, **params), patience_s=self._patience_s
        )
        return bool(rows)

    async def fire_schedule(self, fire: Fire) -> list[Enqueued] | None:
        tasks = list(fire.tasks)
        params = _times(fire._asdict())
        del params["tasks"]

        def work(db: sqlite3.Connection, now: int) -> list[Enqueued] | None:
            if not run(db, "schedule_fire", **params, now=now):
                return None
            return enqueue.enqueue(db, now, tasks) if tasks else []

        answers: list[Enqueued] | None = await self._write(work)
        return answers

    async def drop_schedule(self, name: str) -> bool:
        return bool(await self._write(lambda db, now: run(db, "schedule_drop", name=name)))


def _times(params: dict[str, Any]) -> dict[str, Any]:
    """The same with times as SQLite keeps them."""
    times = {name: params[name] for name in ("next_at", "last_at")}
    return params | {name: None if at is None else micros(at) for name, at in times.items()}


def _schedule(row: tuple[Any, ...]) -> Schedule:
    *facts, next_at, last_at, missed = row
    return schedule_of((*facts, moment_or_none(next_at), moment_or_none(last_at), missed))
