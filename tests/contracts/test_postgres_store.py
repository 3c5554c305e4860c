"""The PostgreSQL store keeps the promises of every store, straight and behind a pooler.

A new database costs half a second, so all tests of this file share one: its schema is migrated
once, and each test finds every table empty.  Whatever a test leaves connected fails it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from random import Random

import asyncpg
import pytest

from contracts.sides import TABLES
from holdfast.clock import SystemClock
from holdfast.store import Store
from holdfast.stores.postgres import PostgresStore
from holdfast.task import Event, Outcome, TaskId
from holdfast.testing.contracts.builders import NODE, eventually, grabbed
from holdfast.testing.contracts.store import StoreContract
from holdfast.testing.pgbouncer import PgBouncer, is_installed
from holdfast.testing.postgres import Server

OTHERS = (
    "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
    "AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
)


def a_store(url: str) -> PostgresStore:
    return PostgresStore(url, clock=SystemClock(), rng=Random(0))


@pytest.fixture(scope="module")
def database(postgres: Server) -> Iterator[str]:
    """The name of a database with the schema in it."""
    name = f"holdfast_contract_{os.getpid()}"
    url = postgres.create_database(name)
    asyncio.run(a_store(url).migrate())
    yield name
    postgres.drop_database(name)


@pytest.fixture
async def emptied(postgres: Server, database: str) -> AsyncIterator[str]:
    """The database with nothing in it; after the test nobody may be connected any more."""
    connection = await asyncpg.connect(postgres.url(database))
    for table in TABLES.split(", "):
        await connection.execute(f"DELETE FROM holdfast.{table}")
    yield database
    await eventually(lambda: _is_alone(connection))
    await connection.close()


async def _is_alone(connection: asyncpg.Connection) -> bool:
    return not await connection.fetch(OTHERS)


async def opened(url: str) -> AsyncIterator[PostgresStore]:
    store = a_store(url)
    await store.open()
    yield store
    await store.close()


class TestPostgresStore(StoreContract):
    @pytest.fixture
    async def store(self, postgres: Server, emptied: str) -> AsyncIterator[PostgresStore]:
        async for store in opened(postgres.url(emptied)):
            assert not store.is_pooled
            yield store

    async def archived_earlier(self, store: Store, ids: Sequence[TaskId], days: float) -> None:
        (task,) = await grabbed(store)
        async with store.transaction(task, node=NODE) as transaction:
            await transaction.connection.execute(
                "SELECT holdfast.make_archive_days(current_date - $1::integer, 2)", int(days) + 1
            )
            await transaction.connection.execute(
                "UPDATE holdfast.archive SET finished_at = finished_at - $2 * interval '1 day' "
                "WHERE id = ANY ($1::bigint[])",
                list(ids),
                days,
            )
            await transaction.settle(Outcome(task.id, task.version, Event.SUCCEEDED, keep=False))


@pytest.mark.whole
class TestPostgresStoreBehindPgBouncer(TestPostgresStore):
    @pytest.fixture
    async def store(self, postgres: Server, emptied: str) -> AsyncIterator[PostgresStore]:
        if not is_installed():
            pytest.skip("pgbouncer is not installed")
        with PgBouncer(postgres.url()) as pooler:
            async for store in opened(pooler.url(emptied)):
                assert store.is_pooled
                yield store
