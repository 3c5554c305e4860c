"""Schedules: one row each, and one fire for each slot, whoever tries."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from holdfast.schedule import Fire, Schedule, fire_of, planned
from holdfast.store import Store
from holdfast.task import Enqueued, Event, Outcome, State
from holdfast.testing.contracts.builders import NODE, QUEUE, grabbed, look, settle, waiting_triggers
from holdfast.timing import Cron, Every

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


def a_schedule(name: str = "nightly", **changes: Any) -> Schedule:
    fields: dict[str, Any] = {
        "name": name,
        "timing": Every(60.0, catch_up="all"),
        "kind": "report",
        "queue": QUEUE,
        "payload": b"hello",
    }
    return Schedule(**(fields | changes))


async def clock_of(store: Store) -> datetime:
    """The store's own time, to the second: what every store can keep."""
    return (await store.schedules(["none"])).now.replace(microsecond=0)


async def kept(store: Store, name: str = "nightly") -> Schedule:
    (schedule,) = (await store.schedules([name])).schedules
    return schedule


async def put(store: Store, **changes: Any) -> Schedule:
    """A schedule in the store, with these fields."""
    assert await store.put_schedule(a_schedule(**changes))
    return await kept(store, changes.get("name", "nightly"))


def fire_now(store: Store, schedule: Schedule, now: datetime) -> Fire:
    return fire_of(schedule, planned(schedule, now), partitions=store.partitions)


class SchedulesContract:
    async def test_a_schedule_comes_back_as_it_was_put(self, store: Store) -> None:
        now = await clock_of(store)
        wanted = a_schedule(
            timing=Cron("0 3 * * MON-FRI", "Europe/Berlin", catch_up="none"),
            priority=2,
            fairness_key="acme",
            weight=2.5,
            ordering_key="order",
            metadata=b'{"a":1}',
            partition=3,
            source="code",
            is_paused=True,
            next_at=now + HOUR,
            last_at=now - HOUR,
            missed=7,
        )

        assert await store.put_schedule(wanted)
        assert await store.put_schedule(a_schedule("another"))

        listed = await store.schedules()
        assert [one.name for one in listed.schedules] == ["another", "nightly"]
        assert listed.schedules[1] == replace(wanted, version=1)
        assert listed.schedules[0].is_ended, "it has no next slot"
        assert now <= listed.now <= now + HOUR
        assert (await store.schedules(["missing"])).schedules == []

    @pytest.mark.req("TASK-84")
    async def test_there_is_one_row_for_a_name_and_one_change_for_a_version(
        self, store: Store
    ) -> None:
        first = a_schedule(source="code")

        answers = await asyncio.gather(*[store.put_schedule(first) for _ in range(5)])
        changed = await store.put_schedule(replace(first, version=1, is_paused=True))
        stale = await store.put_schedule(replace(first, version=1, missed=5))

        assert sorted(answers) == [False, False, False, False, True]
        assert (changed, stale) == (True, False)
        found = await kept(store)
        assert (found.version, found.is_paused, found.missed) == (2, True, 0)
        assert not await store.put_schedule(replace(first, name="never put", version=3))

    async def test_only_what_is_due_and_not_paused_is_answered_the_oldest_first(
        self, store: Store
    ) -> None:
        now = await clock_of(store)
        await put(store, name="late", next_at=now - HOUR)
        await put(store, name="later", next_at=now - 2 * HOUR)
        await put(store, name="paused", next_at=now - HOUR, is_paused=True)
        await put(store, name="ended", next_at=None)
        await put(store, name="soon", next_at=now + HOUR)
        await put(store, name="some day", next_at=now + 2 * HOUR)

        all_due = await store.due_schedules(limit=100)
        first = await store.due_schedules(limit=1)

        assert [one.name for one in all_due.schedules] == ["later", "late"]
        assert all_due.next_at == now + HOUR
        assert [one.name for one in first.schedules] == ["later"]

    async def test_without_schedules_nothing_is_due(self, store: Store) -> None:
        listed = await store.due_schedules(limit=100)

        assert (listed.schedules, listed.next_at) == ([], None)

    async def test_a_fire_adds_its_tasks_and_moves_the_schedule_on(self, store: Store) -> None:
        now = await clock_of(store)
        slot = now.replace(second=0)
        schedule = await put(store, next_at=slot, missed=1)
        fire = fire_now(store, schedule, now)

        answers = await store.fire_schedule(fire._replace(missed=2))

        assert answers is not None
        (enqueued,) = answers
        task = await look(store, enqueued.id)
        assert (task.state, task.kind, task.payload) == (State.SUBMITTED, "report", b"hello")
        found = await kept(store)
        assert (found.version, found.missed) == (2, 3)
        assert (found.last_at, found.next_at) == (slot, slot + timedelta(minutes=1))

    async def test_a_fire_of_an_old_version_or_before_its_time_changes_nothing(
        self, store: Store
    ) -> None:
        now = await clock_of(store)
        schedule = await put(store, next_at=now.replace(second=0))
        fire = fire_now(store, schedule, now)
        ahead = await put(store, name="ahead", next_at=now + HOUR)
        early = fire_now(store, replace(ahead, next_at=now), now)

        assert await store.fire_schedule(fire) is not None
        assert await store.fire_schedule(fire) is None
        assert await store.fire_schedule(early) is None
        assert await store.fire_schedule(fire._replace(name="missing")) is None

        assert len(await waiting_triggers(store)) == 1
        assert await kept(store, "ahead") == ahead

    async def test_a_fire_without_tasks_only_moves_on(self, store: Store) -> None:
        now = await clock_of(store)
        schedule = await put(store, next_at=now, last_at=now - HOUR)
        fire = Fire(schedule.name, 1, [], now + HOUR, None, missed=4)

        assert await store.fire_schedule(fire) == []

        found = await kept(store)
        assert (found.last_at, found.next_at, found.missed) == (now - HOUR, now + HOUR, 4)
        assert await waiting_triggers(store) == []

    async def test_a_slot_never_fires_twice_though_its_schedule_was_made_anew(
        self, store: Store
    ) -> None:
        now = await clock_of(store)
        schedule = await put(store, next_at=now.replace(second=0))
        await store.fire_schedule(fire_now(store, schedule, now))

        assert await store.drop_schedule(schedule.name)
        again = await put(store, next_at=now.replace(second=0))
        answers = await store.fire_schedule(fire_now(store, again, now))

        assert answers is not None and [one.created for one in answers] == [False]
        assert len(await waiting_triggers(store)) == 1

    async def test_of_five_who_fire_at_once_one_wins_each_slot(self, store: Store) -> None:
        now = await clock_of(store)
        await put(store, timing=Every(1.0, catch_up="all"), next_at=now - timedelta(seconds=30))

        async def node() -> list[Enqueued]:
            won: list[Enqueued] = []
            while (schedule := await kept(store)).next_at and schedule.next_at <= now:
                # One slot at a time, as if each were found at once.
                plan = planned(schedule, schedule.next_at)
                fire = fire_of(schedule, plan, partitions=store.partitions)
                won += await store.fire_schedule(fire) or []
            return won

        won = [one for line in await asyncio.gather(*[node() for _ in range(5)]) for one in line]

        assert len(won) == 31 and all(one.created for one in won)
        assert len(await waiting_triggers(store)) == 31
        assert (await kept(store)).version == 32

    async def test_a_dropped_schedule_is_gone_and_its_tasks_stay(self, store: Store) -> None:
        now = await clock_of(store)
        schedule = await put(store, next_at=now.replace(second=0))
        await store.fire_schedule(fire_now(store, schedule, now))

        assert await store.drop_schedule("nightly")
        assert not await store.drop_schedule("nightly")

        assert (await store.schedules()).schedules == []
        assert len(await waiting_triggers(store)) == 1

    @pytest.mark.req("TASK-84")
    async def test_a_schedule_ends_with_the_outcome_that_says_so_and_only_if_that_is_recorded(
        self, store: Store
    ) -> None:
        now = await clock_of(store)
        for name in ("nightly", "hourly", "daily"):
            await put(store, name=name, next_at=now - HOUR)
        first, second, third = [(await grabbed(store))[0] for _ in range(3)]

        assert await settle(store, first, Event.SUCCEEDED, ends="nightly")
        assert not await settle(store, second._replace(version=99), Event.SUCCEEDED, ends="hourly")
        assert await settle(store, second, Event.SUCCEEDED, ends="no such schedule")
        async with store.transaction(third, node=NODE) as transaction:
            outcome = Outcome(third.id, third.version, Event.SUCCEEDED, ends="daily")
            assert await transaction.settle(outcome)

        found = {one.name: one for one in (await store.schedules()).schedules}
        assert [one for one in found if found[one].is_ended] == ["daily", "nightly"]
        assert [found[one].version for one in ("daily", "hourly", "nightly")] == [2, 1, 2]
        assert [one.name for one in (await store.due_schedules(limit=9)).schedules] == ["hourly"]

    async def test_only_schedules_that_ended_long_ago_are_cleaned(self, store: Store) -> None:
        now = await clock_of(store)
        old, young = now - 3 * DAY, now - HOUR
        await put(store, name="over", last_at=old)
        await put(store, name="just over", last_at=young)
        await put(store, name="never fired")
        await put(store, name="goes on", last_at=old, next_at=now + HOUR)
        await put(store, name="paused", last_at=old, is_paused=True)
        await put(store, name="of code", last_at=old, source="code")

        await store.clean(keep_days=2, limit=100)

        left = [one.name for one in (await store.schedules()).schedules]
        assert left == ["goes on", "just over", "never fired", "of code", "paused"]
