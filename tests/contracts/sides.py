"""Stores side by side: the same call on each of them, and answers that can be compared.

A store numbers tasks and shares in its own way.  Here each of them has the number in which it was
first seen, which is the same on every side; calls are made and answers are told in these numbers.
All sides live by one clock that stands still until it is told to go on, also PostgreSQL: there
the function that every decision asks for the time reads it from a table.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import asyncpg

from holdfast.callers.scripts import play, play_async
from holdfast.ids import NodeId
from holdfast.limit import Share
from holdfast.sql.query import Query, Style, arguments, rendered
from holdfast.store import Changed, Filter, Holding, Store
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.sqlite import SQLiteStore
from holdfast.task import HOT, Enqueued, NewTask, State, Task, Trigger
from holdfast.testing.contracts.builders import QUEUE, waiting_triggers
from holdfast.testing.model import ModelStore

T = TypeVar("T")

NODES = [NodeId("a"), NodeId("b"), NodeId("c")]
RING = "cuts"
PARTITIONS = 8  # that every store has
NOBODY = 2**40  # no store has given an id like this

TABLES = (
    "task, archive, key, partition, backlog, mark, node, counter, limit_rule, weight_rule, "
    "fairness_rule, share, bucket, ring, ring_record, duty, schedule"
)
SET_CLOCK = """
    CREATE TABLE IF NOT EXISTS public.set_clock (at timestamptz NOT NULL);
    DELETE FROM public.set_clock;
    INSERT INTO public.set_clock SELECT statement_timestamp();
    CREATE OR REPLACE FUNCTION holdfast.now() RETURNS timestamptz LANGUAGE sql STABLE AS
        $$ SELECT at FROM public.set_clock $$;
"""


class SetClock:
    """Stands still until it is told to go on."""

    def __init__(self) -> None:
        self.at = datetime(2030, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        return self.at

    def seconds(self) -> float:
        return self.at.timestamp()


class Numbers:
    """What one store numbers in its own way, by the order in which it was first seen."""

    def __init__(self) -> None:
        self._theirs: list[int] = []
        self._ours: dict[int, int] = {}

    def ours(self, theirs: int) -> int:
        if theirs not in self._ours:
            self._ours[theirs] = len(self._theirs)
            self._theirs.append(theirs)
        return self._ours[theirs]

    def theirs(self, ours: int) -> int:
        """What was never seen has a number that the store does not know."""
        return self._theirs[ours] if 0 <= ours < len(self._theirs) else NOBODY + ours

    def __len__(self) -> int:
        return len(self._theirs)


class Side:
    """One store, spoken to in our own numbers."""

    name = "model"
    store: Store

    def __init__(self, clock: SetClock) -> None:
        self.clock = clock
        self.tasks = Numbers()
        self.shares = Numbers()

    async def open(self) -> None:
        self.store = ModelStore(clock=self.clock)

    async def close(self) -> None: ...

    async def reopen(self) -> None: ...

    async def set_clock(self) -> None:
        """The clock has been told to go on."""

    async def begin(self, tasks: Sequence[NewTask]) -> None:
        """Enqueue in a transaction of the caller's.  The model has none: it does so at the end."""
        self._began = list(tasks), self.clock.at

    async def end(self, *, commit: bool) -> list[Enqueued]:
        """Commit or roll back; what was answered to the enqueue, if it counts."""
        if not commit:
            return []
        tasks, at = self._began
        self.clock.at, now = at, self.clock.at
        try:
            return await self.store.enqueue(tasks)
        finally:
            self.clock.at = now

    async def losses(self) -> list[tuple[int, int]]:
        """How many deliveries of each task were lost: told at its next grab only, so we peek.

        Out of ERROR leads a person's wish alone, which starts the counting anew.
        """
        assert isinstance(self.store, ModelStore)
        tasks = self.store._tasks.values()
        ids = [task.id for task in tasks if task.state in HOT - {State.ERROR}]
        return [(id, self.store._losses[id]) for id in ids]

    # Between our numbers and theirs

    def theirs(self, value: T) -> T:
        """A trigger, an outcome or a change as this store knows it."""
        id: Any = self.tasks.theirs(value.id)  # type: ignore[attr-defined]
        found: T = value._replace(id=id)  # type: ignore[attr-defined]
        return found

    def named(self, tasks: dict[int, int]) -> dict[Any, int]:
        return {self.tasks.theirs(id): version for id, version in tasks.items()}

    def ours(self, value: Any) -> Any:
        """An answer of this store, as all of them should give it."""
        match value:
            case list():
                return [self.ours(one) for one in value]
            case Task():
                return self._seen(value)
            case Trigger():  # numbers of arrival are each store's own affair
                return value._replace(id=self.tasks.ours(value.id), arrived=0)
            case Changed(answer, trigger):
                # Of a task that runs no more it is a hint to whoever ran it, and tells no more.
                return answer, trigger and self.ours(trigger)
            case Share():
                return value._replace(number=value.number and self.shares.ours(value.number) + 1)
            case _:
                return value._replace(id=self.tasks.ours(value.id))

    def _seen(self, task: Task) -> Task:
        """What people see of a task; what a store may forget once it means nothing is left out."""
        said = task.error
        return replace(
            task,
            id=self.tasks.ours(task.id),
            due_at=task.due_at if task.state is State.WAITING else None,
            deadline_at=task.deadline_at if task.state is State.PROCESSING else None,
            error="delivered …" if said and said.startswith("delivered ") else said,
        )


class SQLiteSide(Side):
    name = "sqlite"

    def __init__(self, clock: SetClock, path: Path) -> None:
        super().__init__(clock)
        self._path = path

    async def open(self) -> None:
        self.store = SQLiteStore(self._path, clock=self.clock, rng=Random(0), durability="fast")
        await self.store.open()

    async def close(self) -> None:
        await self.store.close()

    async def reopen(self) -> None:
        await self.close()
        await self.open()

    async def begin(self, tasks: Sequence[NewTask]) -> None:
        self._caller = sqlite3.connect(self._path, isolation_level=None)
        self._caller.execute("PRAGMA wal_autocheckpoint = 0").fetchall()
        self._caller.execute("BEGIN IMMEDIATE")
        self._answers = play(self.store.enqueueing(tasks), self._execute)

    async def end(self, *, commit: bool) -> list[Enqueued]:
        self._caller.execute("COMMIT" if commit else "ROLLBACK")
        self._caller.close()
        return self._answers if commit else []

    async def losses(self) -> list[tuple[int, int]]:
        db = sqlite3.connect(self._path)
        try:
            return db.execute("SELECT id, losses FROM holdfast_task WHERE state <> 4").fetchall()
        finally:
            db.close()

    def _execute(self, query: Query, params: dict[str, Any]) -> list[Any]:
        return self._caller.execute(rendered(query, Style.NAMED)[0], params).fetchall()


class PostgresSide(Side):
    name = "postgres"

    def __init__(self, clock: SetClock, url: str) -> None:
        super().__init__(clock)
        self._url = url

    async def open(self) -> None:
        """Finds every table empty, whatever was played before."""
        self._caller = await asyncpg.connect(self._url)
        self._clock_keeper = await asyncpg.connect(self._url)
        deletes = [f"DELETE FROM holdfast.{table};" for table in TABLES.split(", ")]
        await self._clock_keeper.execute("\n".join(deletes))
        await self._clock_keeper.execute("UPDATE holdfast.rule_version SET version = 0")
        await self.set_clock()
        await self._open_store()

    async def _open_store(self) -> None:
        self.store = PostgresStore(self._url, clock=self.clock, rng=Random(0), pooled=False)
        await self.store.open()

    async def close(self) -> None:
        await self.store.close()
        await self._caller.close()
        await self._clock_keeper.close()

    async def reopen(self) -> None:
        await self.store.close()
        await self._open_store()

    async def set_clock(self) -> None:
        await self._clock_keeper.execute("UPDATE public.set_clock SET at = $1", self.clock.at)

    async def begin(self, tasks: Sequence[NewTask]) -> None:
        self._transaction = self._caller.transaction()
        await self._transaction.start()
        self._answers = await play_async(self.store.enqueueing(tasks), self._execute)

    async def end(self, *, commit: bool) -> list[Enqueued]:
        await (self._transaction.commit() if commit else self._transaction.rollback())
        return self._answers if commit else []

    async def losses(self) -> list[tuple[int, int]]:
        rows = await self._clock_keeper.fetch(
            "SELECT id, losses FROM holdfast.task WHERE state <> 4"
        )
        return [(id, losses) for id, losses in rows]

    async def _execute(self, query: Query, params: dict[str, Any]) -> list[Any]:
        text, names = rendered(query, Style.DOLLAR)
        rows: list[Any] = await self._caller.fetch(text, *arguments(names, params))
        return rows


async def tasks_of(side: Side) -> dict[str, Any]:
    """All that can be seen of a store's tasks."""
    store = side.store
    return {
        "tasks": side.ours(await store.find(Filter(limit=1000))),
        "counts": await store.counts(),
        "waiting": sorted(side.ours(await waiting_triggers(store))),
        "running": [sorted(side.ours(await store.running_of(node))) for node in NODES],
        "overdue": sorted(side.ours(await store.overdue(limit=1000))),
        "losses": sorted((side.tasks.ours(id), lost) for id, lost in await side.losses()),
    }


async def rest_of(side: Side) -> dict[str, Any]:
    """All else that can be seen of a store."""
    store = side.store
    look = await store.look([QUEUE])
    return {
        "members": look.members,
        "holdings": _first(look.holdings[QUEUE]),
        "duties": look.duties,
        "rules": await store.rules(QUEUE),
        "ring": await store.ring_records(RING, after=0, limit=1000),
        "latest": await store.ring_latest(RING),
        "schedules": (await store.schedules()).schedules,
        "due schedules": await store.due_schedules(limit=100),
    }


def _first(holdings: Sequence[Holding]) -> list[Holding]:
    return [one for one in holdings if one.partition < PARTITIONS]
