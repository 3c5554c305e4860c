"""The window of a column under random histories, on the model and on the real stores.

Each history is played from its seed; a failure names the seed and tells the history.  Set
HOLDFAST_LONG=1 for twenty times as many.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing, contextmanager
from random import Random
from typing import Any

import pytest

from histories.columns import (
    History,
    ModelColumn,
    PostgresColumn,
    SQLiteColumn,
    drive,
    drive_awaiting,
    new_database,
)
from histories.lanes import LaneWorld
from histories.world import World
from holdfast.clock import SystemClock
from holdfast.stores.postgres.store import PostgresStore
from holdfast.testing.apps import migrate

TIMES = 20 if os.environ.get("HOLDFAST_LONG") else 1
HISTORIES = 5_000 * TIMES
HISTORIES_POSTGRES = 500 * TIMES
LANES = 21  # one of so many histories has keys that are held and released
LANE_HISTORIES = 200  # in which everything has to happen
CRASHED = 10 * TIMES  # histories that crash once at each of their steps
DRAWN = ("spilled", "read", "trimmed", "released", "taken over", "crashed")
TOGETHER = 8  # histories at a time on PostgreSQL


def a_world(seed: int, **options: Any) -> World | LaneWorld:
    """The world of this seed."""
    return World(seed, **options) if seed % LANES else LaneWorld(seed // LANES, **options)


@contextmanager
def naming(seed: int, world: World | LaneWorld) -> Iterator[History]:
    """The history of the world; when it fails, the failure says which one it was."""
    try:
        yield world.play()
    except AssertionError as error:
        pytest.fail(f"seed {seed}: {error}\n{world.told()}", pytrace=False)


@pytest.fixture
def new_column(kind: str) -> Iterator[Callable[[], ModelColumn | SQLiteColumn]]:
    """Makes an empty column of this kind of store."""
    if kind == "model":
        yield ModelColumn
        return
    with closing(new_database()) as db:
        yield lambda: SQLiteColumn(db, "default")


@pytest.mark.whole
@pytest.mark.req("FAIR-74")
@pytest.mark.parametrize("kind", ["model", "sqlite"])
def test_whatever_happens_every_acknowledged_write_is_dispatched_and_no_version_twice(new_column):
    for seed in range(HISTORIES):
        world = a_world(seed)
        with naming(seed, world) as history:
            drive(history, new_column())


@pytest.mark.whole
@pytest.mark.req("FAIR-74")
@pytest.mark.parametrize("kind", ["model", "sqlite"])
def test_a_crash_before_any_step_loses_no_acknowledged_write(new_column):
    for seed in range(CRASHED):
        for step in range(a_world(seed).length):
            world = a_world(seed, crash_at=step)
            with naming(seed, world) as history:
                drive(history, new_column())


@pytest.fixture
async def postgres_store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    await migrate(postgres_url)
    store = PostgresStore(postgres_url, clock=SystemClock(), rng=Random(0))
    await store.open()
    yield store
    await store.close()


@pytest.mark.whole
@pytest.mark.store("postgres")
@pytest.mark.req("FAIR-74")
async def test_it_holds_on_postgres_too(postgres_store):
    seeds = iter(range(HISTORIES_POSTGRES))

    async def play_some() -> None:
        for seed in seeds:
            queue = f"queue-{seed}"
            column = PostgresColumn(postgres_store, queue)
            await column.open()
            world = a_world(seed, queue=queue)
            with naming(seed, world) as history:
                await drive_awaiting(history, column)

    await asyncio.gather(*[play_some() for _ in range(TOGETHER)])


def test_the_histories_draw_everything_that_can_happen_to_a_stored_lane():
    drawn: Counter[str] = Counter()
    for seed in range(LANE_HISTORIES):
        world = LaneWorld(seed)
        drive(world.play(), ModelColumn())
        drawn.update({name: bool(times) for name, times in world.drawn.items()})

    rare = [what for what in DRAWN if drawn[what] < 3]
    assert not rare, f"in {LANE_HISTORIES} histories: {drawn}"
