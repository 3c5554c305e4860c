"""Schedules as people steer them: from code, and while nodes run.

    report.schedule("nightly report", Cron("0 3 * * *", tz="Europe/Berlin"), "emea")  # from code
    await report.put_schedule("customer 17", Every(3600), "apac")  # at run time
    await app.schedules.pause("nightly report")

Everything is kept in the store and holds for all nodes.  What code says holds from the next start
of a node on: another line replaces the one in the store, a schedule that is gone from the code
stays until it is dropped.  Whoever dies in the middle of a call has changed all of it or nothing;
calling again does no harm.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime

from holdfast.client import Client
from holdfast.errors import ConfigurationError, StoreUnavailable
from holdfast.schedule import Schedule, merged, task_of
from holdfast.store import Answer, Store
from holdfast.task import TaskId
from holdfast.telemetry.events import Events, ScheduleChanged

TRIES_MAX = 20  # of a change that somebody else is faster with each time

Build = Callable[[int], Schedule]
"""A schedule, given the number of partitions."""


Change = Callable[[Schedule | None, datetime], Schedule | None]
"""What to write, given the schedule as it is and the store's time; None: nothing."""


class Schedules:
    """All schedules of a store."""

    def __init__(
        self,
        store: Callable[[], Awaitable[Store]],
        client: Callable[[], Awaitable[Client]],
        *,
        events: Events,
    ) -> None:
        self._store = store
        self._client = client
        self._events = events
        self._declared: dict[str, Build] = {}

    async def list(self) -> list[Schedule]:
        """All of them, by name, also those that are paused or have ended."""
        return (await (await self._store()).schedules()).schedules

    async def get(self, name: str) -> Schedule | None:
        """The schedule as it is now; None when there is none of this name."""
        found = (await (await self._store()).schedules([name])).schedules
        return found[0] if found else None

    async def put(self, build: Build | Schedule) -> Schedule:
        """Keep the schedule, in place of the one of its name; see `put_schedule` of a task.

        ConfigurationError when it has no slot ahead.
        """
        store = await self._store()
        wanted = build if isinstance(build, Schedule) else build(store.partitions)

        def change(known: Schedule | None, now: datetime) -> Schedule | None:
            written = merged(known, wanted, now)
            if written is not None and written.is_ended and wanted.timing.next_after(now) is None:
                raise ConfigurationError(
                    f"schedule {wanted.name!r} would never fire: {wanted.timing.words()} has passed"
                )
            return written

        await self._change(wanted.name, change)
        (found,) = (await store.schedules([wanted.name])).schedules
        return found

    async def pause(self, name: str) -> Answer:
        """Fire no more until it is resumed; what was fired goes on."""

        def change(known: Schedule | None, now: datetime) -> Schedule | None:
            return None if known is None or known.is_paused else replace(known, is_paused=True)

        return await self._change(name, change)

    async def resume(self, name: str) -> Answer:
        """Go on with the next slot, also after an end; slots that passed meanwhile do not fire.

        NOT_ALLOWED: there is no slot ahead.
        """

        def change(known: Schedule | None, now: datetime) -> Schedule | None:
            if known is None or not (known.is_paused or known.is_ended):
                return None
            return replace(known, is_paused=False, next_at=known.timing.next_after(now))

        answer = await self._change(name, change)
        if answer is Answer.OK and (found := await self.get(name)) and found.is_ended:
            return Answer.NOT_ALLOWED
        return answer

    async def run_now(self, name: str) -> TaskId | None:
        """Add one task of it now, besides its slots; None: there is no such schedule."""
        schedule = await self.get(name)
        if schedule is None:
            return None
        client = await self._client()
        next_at = None if schedule.is_paused else schedule.next_at
        task = task_of(schedule, None, next_at, partitions=client.partitions)
        return (await client.enqueue(task)).id

    async def drop(self, name: str) -> Answer:
        """Forget the schedule; what it fired stays.  Code that names it makes it anew."""
        if not await (await self._store()).drop_schedule(name):
            return Answer.NOT_FOUND
        self._events.emit(ScheduleChanged(name))
        return Answer.OK

    # ── what code says ────────────────────────────────────────────────────────────────────

    def declare(self, name: str, build: Build) -> None:
        if name in self._declared:
            raise ConfigurationError(f"two schedules are named {name!r}: a name is for one of them")
        self._declared[name] = build

    async def register(self) -> None:
        for name, build in self._declared.items():
            store = await self._store()
            wanted = replace(build(store.partitions), source="code")
            await self._change(name, _kept(wanted))

    async def _change(self, name: str, change: Change) -> Answer:
        """Write what `change` makes of the schedule; None leaves it as it is."""
        store = await self._store()
        for _ in range(TRIES_MAX):
            now, schedules, _ = await store.schedules([name])
            known = schedules[0] if schedules else None
            wanted = change(known, now)
            if wanted is None:
                return Answer.OK if known else Answer.NOT_FOUND
            if await store.put_schedule(wanted):
                self._events.emit(ScheduleChanged(name))
                return Answer.OK
        raise StoreUnavailable(f"schedule {name!r} changed each time while we asked: try again")


def _kept(wanted: Schedule) -> Change:
    return lambda known, now: merged(known, wanted, now)
