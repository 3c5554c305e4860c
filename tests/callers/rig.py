"""A store, a bus that remembers, and a kit: what the app would give to a caller."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import asyncpg
import psycopg

from callers.ways import Way
from conditions import until
from holdfast.callers import Kit, Watch, postgres_kit, sqlite_kit, wrap
from holdfast.callers.watch import has_ended
from holdfast.clock import SystemClock
from holdfast.store import Store
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.sqlite.store import SQLiteStore
from holdfast.task import Task, TaskId, Trigger, trigger_of
from holdfast.telemetry.events import Events
from holdfast.testing.build import a_new_task, a_trigger

WAIT_S = 10.0
NOBODY = -1  # the id of no task


class Sent:
    """A bus that remembers, and looks at each trigger's task the moment it is sent."""

    def __init__(self, address: str, store: str) -> None:
        self.triggers: list[Trigger] = []
        self.unseen: list[TaskId] = []  # tasks that nobody could have grabbed yet
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._address, self._store = address, store

    def publish(self, triggers: Sequence[Trigger]) -> None:
        ids = [trigger.id for trigger in triggers]
        self.unseen += set(ids) - self._seen(ids)
        self.triggers += triggers
        self._loop.call_soon_threadsafe(self._news.set)

    @property
    def ids(self) -> list[TaskId]:
        return sorted(trigger.id for trigger in self.triggers)

    async def until(self, count: int) -> None:
        async with asyncio.timeout(WAIT_S):
            while len(self.triggers) < count:
                self._news.clear()
                await self._news.wait()

    def _seen(self, ids: Collection[int]) -> set[int]:
        if self._store == "sqlite":
            db = sqlite3.connect(self._address)
            rows = db.execute("SELECT id FROM holdfast_task").fetchall()
            db.close()
        else:
            with psycopg.connect(self._address) as db:
                rows = db.execute("SELECT id FROM holdfast.task").fetchall()
        return {id for (id,) in rows} & set(ids)


class Rig:
    """The app's side of it."""

    def __init__(self, store: Store, sent: Sent, address: str) -> None:
        self.store = store
        self.sent = sent
        self.address = address
        self.events = Events()
        self.looks: list[list[TaskId]] = []  # what the store was asked to make sure
        self.watch = Watch(
            self._get,
            sent.publish,
            loop=asyncio.get_running_loop(),
            events=self.events,
            data_version=getattr(store, "data_version", None),
        )
        self.kit: Kit

    async def _get(self, ids: Sequence[TaskId]) -> dict[TaskId, Task]:
        if asked := [id for id in ids if id != NOBODY]:
            self.looks.append(asked)
        return await self.store.get(ids)

    async def enqueue(self, way: Way, count: int = 1, **fields: Any) -> list[TaskId]:
        """Add tasks in the way's open transaction, as `enqueue(within=…)` does."""
        tasks = [a_new_task(**fields) for _ in range(count)]

        def add() -> Any:
            caller = wrap(way.within, kit=self.kit)
            if caller.is_async:
                return self._add(caller, tasks)
            enqueued = caller.run_sync(self.store.enqueueing(tasks))
            caller.after_commit([trigger_of(*pair) for pair in zip(tasks, enqueued, strict=True)])
            return enqueued

        return [one.id for one in await way.call(add)]

    async def _add(self, caller: Any, tasks: list) -> Any:
        enqueued = await caller.run(self.store.enqueueing(tasks))
        caller.after_commit([trigger_of(*pair) for pair in zip(tasks, enqueued, strict=True)])
        return enqueued

    async def time_passes(self) -> None:
        """Whatever was on its way has arrived: the watch has looked three times since."""
        for _ in range(3):
            nobody = self.watch.add([a_trigger(NOBODY)], probe=has_ended)
            await until(lambda nobody=nobody: nobody.is_taken)


@asynccontextmanager
async def rig_on_postgres(url: str) -> AsyncIterator[Rig]:
    store = PostgresStore(url, clock=SystemClock(), rng=Random(0))
    await store.migrate()
    await store.open()
    rig = Rig(store, Sent(url, "postgres"), url)
    ours = await asyncpg.connect(url)
    rig.kit = await postgres_kit(ours, schema="holdfast", publish=rig.sent.publish, watch=rig.watch)
    await ours.close()
    yield rig
    await rig.watch.close()
    await store.close()


@asynccontextmanager
async def rig_on_sqlite(path: Path) -> AsyncIterator[Rig]:
    store = SQLiteStore(path, clock=SystemClock(), rng=Random(0))
    await store.open()
    rig = Rig(store, Sent(str(path), "sqlite"), str(path))
    rig.kit = sqlite_kit(str(path), publish=rig.sent.publish, watch=rig.watch)
    yield rig
    await rig.watch.close()
    await store.close()
