"""The SQLite store keeps the promises of every store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from random import Random

import pytest

from holdfast.clock import SystemClock
from holdfast.store import Store
from holdfast.stores.sqlite import SQLiteStore
from holdfast.task import Event, Outcome, TaskId
from holdfast.testing.contracts.builders import NODE, grabbed
from holdfast.testing.contracts.store import StoreContract


class TestSQLiteStore(StoreContract):
    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[SQLiteStore]:
        store = SQLiteStore(tmp_path / "app.db", clock=SystemClock(), rng=Random(0))
        await store.open()
        yield store
        await store.close()

    async def archived_earlier(self, store: Store, ids: Sequence[TaskId], days: float) -> None:
        (task,) = await grabbed(store)
        async with store.transaction(task, node=NODE) as transaction:
            transaction.connection.executemany(
                "UPDATE holdfast_archive SET finished_at = finished_at - ? WHERE id = ?",
                [(int(days * 86_400_000_000), id) for id in ids],
            )
            await transaction.settle(Outcome(task.id, task.version, Event.SUCCEEDED, keep=False))


class TestSQLiteStoreInMemory(TestSQLiteStore):
    @pytest.fixture
    async def store(self) -> AsyncIterator[SQLiteStore]:
        store = SQLiteStore(":memory:", clock=SystemClock(), rng=Random(0))
        await store.open()
        yield store
        await store.close()
