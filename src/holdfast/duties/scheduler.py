"""The scheduler: when a slot of a schedule has come, its task is added.

It sleeps until the next slot that it knows, is woken when a schedule is changed in this process,
and looks every `poll_s` whatever happened.  Whether a slot has come is the store's judgement, so
none fires early.  Any number of nodes may keep it at the same time: each fire names the version
that was read, so one of them wins and the others find another one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from holdfast.clock import Clock
from holdfast.duties.duty import AT_ONCE
from holdfast.errors import Unavailable
from holdfast.schedule import Schedule, Timetable, fire_of, planned
from holdfast.task import Trigger, trigger_of
from holdfast.telemetry.events import Events, ScheduleFired, SlotsMissed, StoreFailed

POLL_S = 5.0
BATCH_MAX = 100
REST_S_MIN = 0.001


class Scheduler:
    """Fires what is due; sleeps until the next slot it knows."""

    name = "scheduler"

    def __init__(
        self,
        timetable: Timetable,
        *,
        publish: Callable[[Sequence[Trigger]], None],
        partitions: int,
        clock: Clock,
        events: Events,
        poll_s: float = POLL_S,
    ) -> None:
        self._timetable = timetable
        self._publish = publish
        self._partitions = partitions
        self._clock = clock
        self._events = events
        self._poll_s = poll_s

    async def run_once(self) -> float:
        """Fire a hundred schedules at most, the longest overdue first.

        If we die after a fire, its triggers are lost and the owner's arrivals find the tasks.
        """
        asked_s = self._clock.seconds()
        listed = await self._timetable.due_schedules(limit=BATCH_MAX)
        nexts = [listed.next_at] if listed.next_at else []
        for schedule in listed.schedules:
            try:
                next_at = await self._fire(schedule, listed.now)
            except Unavailable:
                raise
            except Exception as error:
                # Such as one that a newer Holdfast wrote, whose nodes fire it: the others go on.
                self._events.emit(StoreFailed(f"{self.name} ({schedule.name})", str(error)))
                continue
            nexts += [next_at] if next_at else []
        if len(listed.schedules) >= BATCH_MAX:
            return AT_ONCE
        # By the store's time and the seconds since: this machine's time of day does not matter.
        passed_s = self._clock.seconds() - asked_s
        wait_s = min(((at - listed.now).total_seconds() for at in nexts), default=self._poll_s)
        return min(max(wait_s - passed_s, REST_S_MIN), self._poll_s)

    async def _fire(self, schedule: Schedule, now: datetime) -> datetime | None:
        """Fire what is due and answer the next slot, also when somebody else was faster."""
        plan = planned(schedule, now)
        fire = fire_of(schedule, plan, partitions=self._partitions)
        answers = await self._timetable.fire_schedule(fire)
        if answers is None:
            return plan.next_at
        fired = [
            each for each in zip(fire.tasks, plan.slots, answers, strict=True) if each[2].created
        ]
        self._publish([trigger_of(task, answer) for task, _, answer in fired])
        for _, slot, answer in fired:
            self._events.emit(ScheduleFired(schedule.name, slot, answer.id))
        if plan.missed:
            self._events.emit(SlotsMissed(schedule.name, plan.missed))
        return plan.next_at
