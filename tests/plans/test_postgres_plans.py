"""The hot statements have one plan each, whatever the statistics say.

Each is prepared and planned on engine connections in the worst moments: after ANALYZE of an
empty table, and beside 300,000 dead rows that an old snapshot keeps vacuum from removing.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import asyncpg
import pytest

from holdfast.clock import SystemClock
from holdfast.sql.query import Style, load, rendered
from holdfast.store import Position
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.postgres.connection import ENGINE, PACKAGE
from holdfast.testing.contracts.builders import NODE, QUEUE, a_task, enqueued

DEAD = 300_000
PAGES_A_ROW_MAX = 30  # of the heap and six indexes; walking the dead would take thousands

# Which way each statement goes into the tables: node of the plan, index, columns of its condition.
WAYS = {
    "grab": {("task_pkey", "id"), ("Tid Scan", "ctid")},
    "grab_ordered": {
        ("task_pkey", "id"),
        ("Tid Scan", "ctid"),
        ("partition_pkey", "queue partition"),
        ("task_ordering", "queue ordering_key id"),
        ("task_ordering_busy", "queue ordering_key"),
    },
    "elders": {("task_ordering", "queue ordering_key id")},
    "finish": {("task_pkey", "id"), ("Tid Scan", "ctid"), ("key_task", "task")},
    "moved_on": {("task_pkey", "id")},
    "move": {("task_pkey", "id"), ("Tid Scan", "ctid")},
    "get": {("task_pkey", "id"), ("archive_id", "id")},
    "arrivals": {("task_submitted", "queue partition arrived id")},
    "levels": {("backlog_pkey", "queue partition priority kind pass seq")},
    "count_levels": {("backlog_pkey", "queue partition priority kind pass seq")},
    "record": {
        ("partition_pkey", "queue partition"),
        ("backlog_pkey", "queue partition priority kind pass seq"),
        ("mark_pkey", "queue partition priority kind number"),
        ("Tid Scan", "ctid"),
    },
    "submit_due": {
        ("task_due", "due_at"),
        ("task_pkey", "id"),
        ("Tid Scan", "ctid"),
    },
    "resume_lost": {("task_processing", "node"), ("Tid Scan", "ctid"), ("node_pkey", "id")},
    "standing_running": {("task_processing", "")},
    "standing_elder": {
        ("task_ordering", "queue ordering_key id"),
        ("task_ordering_busy", "queue ordering_key"),
    },
    "standing_before": {
        ("partition_pkey", "queue"),
        ("mark_pkey", "queue partition priority kind"),
        ("backlog_pkey", "queue partition priority kind pass seq"),
        ("task_pkey", "id"),
    },
    "settled_before": {("task_pkey", "id"), ("archive_id", "id")},
    "survey": {
        ("task_submitted", ""),
        ("task_submitted", "queue"),
        ("task_submitted", "queue partition"),
        ("task_due", ""),
        ("task_error", ""),
        ("task_error", "queue"),
        ("task_processing", "node"),
        ("partition_pkey", "partition"),
    },
}


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(postgres_url, clock=SystemClock(), rng=Random(0))
    await store.migrate()
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def engine(postgres_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(postgres_url, server_settings=ENGINE)
    yield connection
    await connection.close()


async def plan(engine: asyncpg.Connection, name: str) -> list[dict[str, Any]]:
    """The nodes of the generic plan of `queries/<name>.sql`."""
    text, names = rendered(load(PACKAGE, name, "holdfast"), Style.DOLLAR)
    await engine.execute(f"PREPARE {name} AS {text}")
    values = ", ".join(["NULL"] * len(names))
    found = await engine.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE {name} ({values})")
    await engine.execute(f"DEALLOCATE {name}")
    return list(_nodes(json.loads(found)[0]["Plan"]))


def _nodes(node: dict[str, Any]):
    yield node
    for child in node.get("Plans", ()):
        yield from _nodes(child)


def ways(nodes: list[dict[str, Any]]) -> set[tuple[str, str]]:
    found = set()
    for node in nodes:
        if node["Node Type"] == "Tid Scan":
            found.add(("Tid Scan", "ctid"))
        elif "Index Name" in node:
            # The indexes of the archive's days are named after their tables.
            index = re.sub(r"archive_\d+_id_idx", "archive_id", node["Index Name"])
            found.add((index, " ".join(_columns(node.get("Index Cond", "")))))
    return found


def _columns(condition: str) -> list[str]:
    """The columns that the index is searched by, in the order of their first mention."""
    own = re.sub(r"\w+\.\w+", "", condition)  # without the values, which come from other relations
    return [word for word in dict.fromkeys(re.findall(r"\w+", own)) if word in _KNOWN]


_KNOWN = {word for each in WAYS.values() for _, columns in each for word in columns.split()}


def checked(name: str, nodes: list[dict[str, Any]]) -> None:
    scans = [node for node in nodes if node["Node Type"] in ("Seq Scan", "Bitmap Heap Scan")]
    joins = [node for node in nodes if node["Node Type"] in ("Hash Join", "Merge Join")]
    assert not scans and not joins, f"{name}: {[node['Node Type'] for node in scans + joins]}"
    assert ways(nodes) == WAYS[name], name


@pytest.mark.parametrize("name", WAYS)
async def test_an_empty_analyzed_table_does_not_change_the_way_in(store, engine, name):
    await engine.execute("VACUUM ANALYZE")

    checked(name, await plan(engine, name))


@pytest.mark.whole
async def test_dead_rows_that_stay_do_not_change_the_way_in_nor_its_cost(
    store, engine, postgres_url
):
    pin = await asyncpg.connect(postgres_url)
    pinned = pin.transaction(isolation="repeatable_read")
    await pinned.start()
    await pin.fetchval("SELECT count(*) FROM holdfast.task")
    await engine.execute("SET statement_timeout = 0")
    await engine.execute(
        "INSERT INTO holdfast.task (queue, partition, kind, priority, state, arrived, due_at,"
        " node, enqueued_at, payload) SELECT $1, 0, 'email', 5, n % 3, pg_current_xact_id(),"
        " now(), $2, now(), '' FROM generate_series(1, $3::integer) AS n",
        QUEUE,
        NODE,
        DEAD,
    )
    horizon = (await store.arrivals(QUEUE, [], limit=1, exact=True)).horizon
    await engine.execute("DELETE FROM holdfast.task")
    await engine.execute("VACUUM ANALYZE")
    try:
        for name in WAYS:
            checked(name, await plan(engine, name))
        await _is_cheap(store, engine, Position(horizon, 0))
    finally:
        await pinned.rollback()
        await pin.close()


async def test_a_survey_of_many_tasks_touches_few_of_them(store, engine):
    """Three queues with 40,000 tasks each; walking them would touch thousands of pages."""
    await engine.execute(
        "INSERT INTO holdfast.task (queue, partition, kind, priority, state, arrived, due_at,"
        " node, enqueued_at, payload) SELECT 'q' || n % 3, n % 32, 'email', 5, n % 2,"
        " pg_current_xact_id(), now(), $1, now(), repeat('x', 200)::bytea"
        " FROM generate_series(1, 120000) AS n",
        NODE,
    )
    await engine.execute("UPDATE holdfast.task SET state = 4 WHERE id % 7 = 0")
    await engine.execute("VACUUM ANALYZE holdfast.task")

    params = {"partitions": 32, "count_max": 100, "processing_max": 1000, "waiting_max": 1000}
    rows, pages = await _ran(engine, "survey", params)
    found = await store.survey(count_max=100)

    assert rows == 3
    assert [(one.waiting, one.submitted, one.error) for one in found] == [(100, 100, 100)] * 3
    assert pages < 1_000, f"{pages} pages"


async def _is_cheap(store: PostgresStore, engine: asyncpg.Connection, start: Position) -> None:
    """A hundred tasks arrive and are grabbed, and touch as few pages as without the dead."""
    ids = await enqueued(store, *(a_task() for _ in range(100)))
    place = {"partitions": [0], "arriveds": [start.arrived], "ids": [start.id], "untils": [2**63]}
    arrivals = {"queue": QUEUE, "limit": 1000, "exact": True, **place}
    at_versions = {"ids": ids, "version": 1, "versions": (), "node": NODE}
    grab = {"kinds": ["email"], "deadlines_s": [60.0], **at_versions}

    for name, params in (("arrivals", arrivals), ("grab", grab)):
        rows, pages = await _ran(engine, name, params)
        assert rows == 100 + (name == "arrivals"), name  # the first row is the snapshot
        assert pages < PAGES_A_ROW_MAX * 100, f"{name}: {pages} pages"


async def _ran(engine: asyncpg.Connection, name: str, params: dict[str, Any]) -> tuple[int, int]:
    """How many rows the statement answered, and how many pages it touched."""
    text, names = rendered(load(PACKAGE, name, "holdfast"), Style.DOLLAR)
    explained = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {text}"
    found = await engine.fetchval(explained, *(params[each] for each in names))
    top = json.loads(found)[0]["Plan"]
    return int(top["Actual Rows"]), top["Shared Hit Blocks"] + top["Shared Read Blocks"]
