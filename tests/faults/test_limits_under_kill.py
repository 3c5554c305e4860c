"""Limits while nodes are killed: by the store's own record, no instant is above them.

A trigger of the database writes down when a task becomes PROCESSING and when it ceases to be.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from random import Random

import pytest

from faults.test_killed_nodes import Fleet, drained, producer, rows
from holdfast.testing.apps import opened

KILL_S = float(os.environ.get("HOLDFAST_KILL_S", "0"))  # a minute in `make long`
EVERY_S = 5.0 if KILL_S else 1.5
LASTS_S = KILL_S or 5.0
TOTAL, EACH = 12, 2
KEYS = [f"k{n}" for n in range(9)]

POSTGRES = """
CREATE TABLE record (number bigserial, at timestamptz DEFAULT clock_timestamp(),
    change integer, key text);
CREATE FUNCTION keep_record() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND NEW.state = 2 AND OLD.state <> 2 THEN
        INSERT INTO record (change, key) VALUES (1, NEW.fairness_key);
    ELSIF OLD.state = 2 AND (TG_OP = 'DELETE' OR NEW.state <> 2) THEN
        INSERT INTO record (change, key) VALUES (-1, OLD.fairness_key);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER keep_record AFTER UPDATE OR DELETE ON holdfast.task
    FOR EACH ROW EXECUTE FUNCTION keep_record()
"""
SQLITE = [
    "CREATE TABLE record (at INTEGER PRIMARY KEY AUTOINCREMENT, change INTEGER, key TEXT)",
    "CREATE TRIGGER begun AFTER UPDATE OF state ON holdfast_task"
    " WHEN NEW.state = 2 AND OLD.state <> 2"
    " BEGIN INSERT INTO record (change, key) VALUES (1, NEW.fairness_key); END",
    "CREATE TRIGGER ended AFTER UPDATE OF state ON holdfast_task"
    " WHEN OLD.state = 2 AND NEW.state <> 2"
    " BEGIN INSERT INTO record (change, key) VALUES (-1, OLD.fairness_key); END",
    "CREATE TRIGGER gone AFTER DELETE ON holdfast_task WHEN OLD.state = 2"
    " BEGIN INSERT INTO record (change, key) VALUES (-1, OLD.fairness_key); END",
]


async def recorded(app) -> None:
    if app.config.url.startswith("sqlite:"):
        for statement in SQLITE:
            await rows(app, statement)
        return
    import asyncpg

    connection = await asyncpg.connect(app.config.url)
    try:
        await connection.execute(POSTGRES)
    finally:
        await connection.close()


async def highest(app) -> tuple[int, Counter[str]]:
    """The most tasks that were PROCESSING at one instant: in all, and of each key."""
    now, most = Counter(), Counter()
    for change, key in await rows(app, "SELECT change, key FROM record ORDER BY at, change"):
        for name in ("all", key):
            now[name] += change
            most[name] = max(most[name], now[name])
    assert not +now, "everything that began has ended"
    return most.pop("all"), most


@pytest.mark.whole
@pytest.mark.req("TASK-54", "TASK-61")
async def test_no_instant_is_above_a_limit_while_nodes_are_killed_and_every_limit_is_reached(
    store_url,
):
    app, _, linger = producer(store_url)
    async with opened(app):
        await recorded(app)
        queue = app.queue("default")
        await queue.limit("total", concurrency=TOTAL)
        await queue.limit("each", concurrency=EACH, key="*")
        loop, rng = asyncio.get_running_loop(), Random(1)
        async with Fleet(store_url, rng) as fleet:
            ends_at, kill_at, count = loop.time() + LASTS_S, loop.time() + EVERY_S, 0
            while loop.time() < ends_at or fleet.killed < 2:  # a busy machine takes its time
                for key in KEYS:
                    await linger.options(fairness_key=key).enqueue_many([(0.1,)] * 8)
                    count += 8
                await asyncio.sleep(0.4)
                if loop.time() >= kill_at:
                    await fleet.kill_one()
                    await fleet.fill()
                    kill_at = loop.time() + EVERY_S
            await drained(app, 90 + KILL_S)

        in_all, by_key = await highest(app)
        assert fleet.killed >= 2
        assert (in_all, set(by_key.values())) == (TOTAL, {EACH}), (in_all, by_key)
        (done,) = await rows(app, "SELECT count(*) FROM " + _archive(store_url))
        assert done == (count,)


def _archive(url: str) -> str:
    name = "holdfast_archive" if url.startswith("sqlite:") else "holdfast.archive"
    return f"{name} WHERE state = 3"
