"""The PostgreSQL store keeps the promises of every store, straight and behind a pooler."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from random import Random

import pytest

from holdfast.clock import SystemClock
from holdfast.store import Store
from holdfast.stores.postgres import PostgresStore
from holdfast.task import Event, Outcome, TaskId
from holdfast.testing.contracts.builders import NODE, grabbed
from holdfast.testing.contracts.store import StoreContract


async def opened(url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(url, clock=SystemClock(), rng=Random(0))
    await store.migrate()
    await store.open()
    yield store
    await store.close()


class TestPostgresStore(StoreContract):
    @pytest.fixture
    async def store(self, postgres_url: str) -> AsyncIterator[PostgresStore]:
        async for store in opened(postgres_url):
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
    async def store(self, pgbouncer_url: str) -> AsyncIterator[PostgresStore]:
        async for store in opened(pgbouncer_url):
            assert store.is_pooled
            yield store
