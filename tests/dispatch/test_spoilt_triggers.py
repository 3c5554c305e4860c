"""A trigger whose start fails: for a while, or for good without being anybody's outage."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from dataclasses import replace

import pytest

from conditions import until
from holdfast import State
from holdfast.dispatch.limits import Limits
from holdfast.errors import Refused, StoreUnavailable
from holdfast.store import Answer, Level
from holdfast.telemetry.events import BugFound, PartitionLost
from holdfast.testing.apps import fresh, opened
from holdfast.testing.contracts.builders import eventually
from holdfast.testing.recorder import Recorder

QUICK = Limits(idle_wait_s=0.3, retry_s=0.01, retry_s_max=0.05, trim_s=0.2)
SPOILT = 7


class Spoiling:
    """The real store, whose grab fails for one task; it notes at which levels tasks were written.

    `fails_append` lets the next append that holds the task fail as well.
    """

    def __init__(self, store, error: Exception) -> None:
        self._store = store
        self._error = error
        self.is_spoilt = True
        self.until = 100  # the last version that fails
        self.fails_append = False
        self.may_fail = asyncio.Event()
        self.may_fail.set()
        self.refused = 0
        self.written: dict[int, list[Level]] = defaultdict(list)
        self.id = 0

    def __getattr__(self, name):
        return getattr(self._store, name)

    async def grab(self, triggers, **named):
        if self.is_spoilt and any(t.id == self.id and t.version <= self.until for t in triggers):
            self.refused += 1
            await self.may_fail.wait()
            raise self._error
        return await self._store.grab(triggers, **named)

    async def record(self, queue, records):
        entries = [entry for record in records for entry in record.entries]
        is_again = any(e.trigger.id == self.id for e in entries) and self.written[self.id]
        if self.fails_append and is_again:
            self.fails_append = False
            raise StoreUnavailable("the disk is full")
        refused = await self._store.record(queue, records)
        for entry in entries:
            self.written[entry.trigger.id].append(entry.level)
        return refused


class Rig:
    """Twenty tasks in a stored backlog, one of them spoilt."""

    def __init__(self, url: str, error: Exception) -> None:
        self.ran: Counter[int] = Counter()
        self.stores: list[Spoiling] = []
        self.app = fresh(url, wrap_store=lambda store: self._wrapped(store, error))

        @self.app.task
        async def count(number: int) -> None:
            self.ran[number] += 1

        self._count = count

    def _wrapped(self, store, error: Exception) -> Spoiling:
        self.stores.append(Spoiling(store, error))
        return self.stores[-1]

    @property
    def store(self) -> Spoiling:
        return self.stores[0]

    async def enqueue(self) -> None:
        handles = await self._count.enqueue_many([(number,) for number in range(20)])
        self.store.id = handles[SPOILT].id
        self.handle = handles[SPOILT]
        self.partition = (await self.handle.task()).partition

    @property
    def levels(self) -> list[Level]:
        """At which levels the spoilt task was written, one after the other."""
        return self.store.written[self.store.id]


def others_ran(rig: Rig) -> bool:
    return rig.ran == Counter(set(range(20)) - {SPOILT})


def all_ran(rig: Rig) -> bool:
    return rig.ran == Counter(range(20))


@pytest.mark.req("FAIR-53")
async def test_a_trigger_that_cannot_be_started_is_written_anew_and_stops_nobody(store_url):
    rig = Rig(store_url, Refused("a value of this row cannot be read"))
    async with opened(rig.app):
        await rig.enqueue()
        async with rig.app.node(limits=QUICK) as node:
            await until(lambda: others_ran(rig) and len(rig.levels) >= 3)
            assert await eventually(lambda: is_acked(rig, rig.levels[0])), "its old place"
            rig.store.is_spoilt = False
            await until(lambda: all_ran(rig))
            await node.drained(10)

            assert rig.levels == sorted(set(rig.levels)), "each time at a new, higher level"
            written = [levels for id, levels in rig.store.written.items() if id != rig.store.id]
            assert {len(levels) for levels in written} == {1}
            assert await eventually(lambda: nothing_is_left(rig))


@pytest.mark.req("FAIR-53")
async def test_a_trigger_whose_start_fails_for_a_while_is_offered_again_as_it_stands(store_url):
    rig = Rig(store_url, StoreUnavailable("the server is starting"))
    async with opened(rig.app):
        await rig.enqueue()
        async with rig.app.node(limits=QUICK) as node:
            await until(lambda: rig.store.refused >= 3)
            rig.store.is_spoilt = False
            await until(lambda: all_ran(rig))
            await node.drained(10)

            assert len(rig.levels) == 1, "nothing was written anew"


@pytest.mark.req("FAIR-53")
async def test_when_the_new_write_fails_the_partition_is_given_up_and_the_trigger_kept(store_url):
    rig = Rig(store_url, Refused("a value of this row cannot be read"))
    async with opened(rig.app):
        await rig.enqueue()
        with Recorder(rig.app.events) as heard:
            async with rig.app.node(limits=QUICK) as node:
                await until(lambda: others_ran(rig))
                rig.store.fails_append = True
                await heard.until(PartitionLost)
                rig.store.is_spoilt = False
                await until(lambda: all_ran(rig))
                await node.drained(10)


@pytest.mark.req("FAIR-53", "TASK-89")
async def test_a_later_version_of_a_task_that_stands_apart_is_started_as_any_other(store_url):
    """The first one stands apart all the while; what it waits for no longer matters."""
    rig = Rig(store_url, Refused("a value of this row cannot be read"))
    limits = replace(QUICK, retry_s_max=60.0)
    async with opened(rig.app):
        await rig.enqueue()
        with Recorder(rig.app.events) as heard:
            async with rig.app.node(limits=limits) as node:
                await until(lambda: others_ran(rig) and rig.store.refused >= 1)
                rig.store.is_spoilt = False
                client = await rig.app.client()
                assert await client.reschedule(rig.handle.id, delay_s=0.2) is Answer.OK
                await until(lambda: all_ran(rig))
                await until(lambda: not node.in_flight)

            assert (await rig.handle.task()).state is State.DONE
            assert heard.all(BugFound) == []


@pytest.mark.req("FAIR-53", "TASK-89")
async def test_a_later_version_that_came_during_the_grab_goes_on_when_that_has_failed(store_url):
    rig = Rig(store_url, Refused("a value of this row cannot be read"))
    limits = replace(QUICK, retry_s_max=60.0)
    async with opened(rig.app):
        await rig.enqueue()
        rig.store.until = 1
        rig.store.may_fail.clear()
        async with rig.app.node(limits=limits) as node:
            await until(lambda: rig.store.refused >= 1)
            client = await rig.app.client()
            assert await client.reschedule(rig.handle.id, delay_s=0.1) is Answer.OK
            (dispatcher,) = node._dispatchers.values()
            await until(lambda: rig.handle.id in dispatcher._later)
            rig.store.may_fail.set()
            await until(lambda: all_ran(rig))
            await until(lambda: not node.in_flight)


@pytest.mark.req("TASK-93")
async def test_a_grab_that_breaks_is_told_and_the_next_one_goes_on(store_url):
    """As a mistake of ours would: its answer names a task that nobody asked for."""
    app = fresh(store_url, wrap_store=Confused)
    ran: Counter[int] = Counter()

    @app.task
    async def count(number: int) -> None:
        ran[number] += 1

    async with opened(app):
        with Recorder(app.events) as heard:
            async with app.node(limits=QUICK, drain_s=0.1):
                await count.enqueue(1)
                bug = await heard.until(BugFound)
                await count.enqueue(2)
                await until(lambda: ran[2] == 1)

        assert bug.what.startswith("a grab broke: KeyError")


class Confused:
    """The real store, whose first grab answers for another task than the one that was asked for."""

    def __init__(self, store) -> None:
        self._store = store
        self._is_first = True

    def __getattr__(self, name):
        return getattr(self._store, name)

    async def grab(self, triggers, **named):
        found = await self._store.grab(triggers, **named)
        if self._is_first and found.tasks:
            self._is_first = False
            found = replace(found, tasks=[found.tasks[0]._replace(id=0)])
        return found


async def is_acked(rig: Rig, level: Level) -> bool:
    """Whether the persisted ack level of the spoilt task's partition has passed this level."""
    loaded = await rig.store.load("default", [rig.partition])
    return any(mark.ack_level >= level for mark in loaded[0].marks.values())


async def nothing_is_left(rig: Rig) -> bool:
    """Whether no column of the stored backlog reaches beyond its ack level."""
    loaded = await rig.store.load("default", range(rig.store.partitions))
    return not any(part.columns for part in loaded)
