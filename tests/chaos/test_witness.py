"""The witness sees every committed change, and only those; the checkers read what it saw."""

from __future__ import annotations

import sqlite3
from collections import Counter

import asyncpg
import psycopg
import pytest

from holdfast import Holdfast, RetryAfter
from holdfast.bench.ground import Place
from holdfast.chaos import witness
from holdfast.testing.apps import opened
from holdfast.verify.checkers import verify


async def told(place: Place) -> list[dict[str, object]]:
    return list(witness.told(await witness.seen(place)))


@pytest.fixture
async def place(store_url) -> Place:
    async with opened(Holdfast(store_url)):
        pass
    place = Place(store_url)
    await witness.install(place)
    return place


async def execute(place: Place, sql: str) -> None:
    if place.is_sqlite:
        with sqlite3.connect(place.file) as db:
            db.execute(sql.replace("holdfast.", "holdfast_"))
        db.close()
        return
    connection = await asyncpg.connect(place.url)
    await connection.execute(sql)
    await connection.close()


async def ran(place: Place) -> list[dict[str, object]]:
    """A task that succeeds, one that is tried twice, and what was written of them."""
    app = Holdfast(place.url)

    @app.task
    async def work(fails: bool) -> None:
        if fails:
            raise RetryAfter(0.01)

    @app.task
    async def flaky() -> None:
        if not tried:
            tried.append(1)
            raise RetryAfter(0.01)

    tried: list[int] = []
    async with app, app.node() as node:
        await work.options(external_id="one").enqueue(False)
        await flaky.enqueue()
        await node.drained(15)
    return await told(place)


async def test_every_move_is_a_line_with_its_event(place):
    lines = await ran(place)

    moves = {}
    for line in lines:
        if line["op"] == "moved":
            moves.setdefault(line["task"], []).append(line["event"])
    assert sorted(moves.values()) == [
        ["GRABBED", "RETRIED", "DUE", "GRABBED", "SUCCEEDED"],
        ["GRABBED", "SUCCEEDED"],
    ]
    created = [line for line in lines if line["op"] == "created"]
    assert [line["request"] for line in created] == ["one", None]
    assert {line["from"] for line in lines if line.get("event") == "SUCCEEDED"} == {"PROCESSING"}
    invoked = {"t": 0.0, "op": "enqueue", "phase": "invoke", "request": "one"}
    assert verify([invoked, *lines]) == []


async def test_what_is_rolled_back_is_not_seen(place):
    app = Holdfast(place.url)

    @app.task
    def work() -> None: ...

    connection = sqlite3.connect(place.file) if place.is_sqlite else psycopg.connect(place.url)
    with connection:
        work.options(within=connection).enqueue_sync()
        connection.rollback()
    connection.close()
    app.close_sync()
    async with app:
        await work.enqueue()

    assert Counter(line["op"] for line in await told(place))["created"] == 1


async def test_a_second_outcome_is_found(postgres_url):
    """On PostgreSQL: the ids of an SQLite archive are unique."""
    place = Place(postgres_url)
    await witness.install(place)
    lines = await ran(place)
    (one,) = {line["task"] for line in lines if line.get("request") == "one"}
    columns = (
        "id, version, state, queue, partition, kind, priority, attempts, deliveries, "
        "enqueued_at, finished_at, payload"
    )
    await execute(
        place,
        f"INSERT INTO holdfast.archive ({columns}) "
        f"SELECT {columns} FROM holdfast.archive WHERE id = {one}",
    )

    found = [str(violation) for violation in verify(await told(place))]
    assert f"C3 one outcome: task {one} moved to DONE after its end" in found


async def test_a_task_that_vanishes_is_found(place):
    app = Holdfast(place.url)

    @app.task
    async def work() -> None: ...

    async with app:
        handle = await work.enqueue()
    await execute(place, f"DELETE FROM holdfast.task WHERE id = {handle.id}")

    assert [str(one) for one in verify(await told(place))] == [
        f"C1 no loss: task {handle.id} is still SUBMITTED"
    ]
