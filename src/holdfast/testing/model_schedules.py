"""The model's schedules: rows by name, moved on under their versions."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime

from holdfast.clock import Clock
from holdfast.schedule import Fire, Listed, Schedule
from holdfast.task import Enqueued, NewTask


class ModelSchedules:
    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._schedules: dict[str, Schedule] = {}

    def _enqueue(self, new: NewTask) -> Enqueued:
        raise NotImplementedError

    async def schedules(self, names: Collection[str] = ()) -> Listed:
        found = [
            one for _, one in sorted(self._schedules.items()) if not names or one.name in names
        ]
        return Listed(self._clock.now(), found)

    async def due_schedules(self, *, limit: int) -> Listed:
        now = self._clock.now()
        times = {
            s.name: s.next_at for s in self._schedules.values() if s.next_at and not s.is_paused
        }
        due = sorted((at, name) for name, at in times.items() if at <= now)[:limit]
        later = min((at for at in times.values() if at > now), default=None)
        return Listed(now, [self._schedules[name] for _, name in due], later)

    async def put_schedule(self, schedule: Schedule) -> bool:
        known = self._schedules.get(schedule.name)
        if (known.version if known else 0) != schedule.version:
            return False
        self._schedules[schedule.name] = replace(schedule, version=schedule.version + 1)
        return True

    async def fire_schedule(self, fire: Fire) -> list[Enqueued] | None:
        known = self._schedules.get(fire.name)
        if known is None or known.version != fire.version:
            return None
        if known.next_at is None or known.next_at > self._clock.now():
            return None
        self._schedules[fire.name] = replace(
            known,
            version=known.version + 1,
            next_at=fire.next_at,
            last_at=fire.last_at or known.last_at,
            missed=known.missed + fire.missed,
        )
        return [self._enqueue(task) for task in fire.tasks]

    async def drop_schedule(self, name: str) -> bool:
        return self._schedules.pop(name, None) is not None

    def _end_schedule(self, name: str | None) -> None:
        known = self._schedules.get(name or "")
        if known is not None and known.next_at is not None:
            ended = replace(known, version=known.version + 1, next_at=None)
            self._schedules[known.name] = ended

    def _clean_schedules(self, before: datetime) -> None:
        for one in list(self._schedules.values()):
            is_old = one.last_at is not None and one.last_at < before
            if is_old and one.is_ended and not one.is_paused and one.source == "run time":
                del self._schedules[one.name]
