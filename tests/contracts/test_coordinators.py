"""Every coordinator keeps its contract, on every store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from holdfast.clock import SystemClock
from holdfast.coordinator import Coordinator
from holdfast.coordinators.local import LocalCoordinator
from holdfast.coordinators.sql import SqlCoordinator
from holdfast.ids import NodeId
from holdfast.store import Store
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.sqlite import SQLiteStore
from holdfast.testing.contracts.coordinator import CoordinatorContract, SharedCoordinatorContract


@pytest.fixture
async def sqlite(tmp_path: Path) -> AsyncIterator[Store]:
    store = SQLiteStore(tmp_path / "app.db", clock=SystemClock(), rng=Random(0))
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def postgres_store(postgres_url: str) -> AsyncIterator[Store]:
    store = PostgresStore(postgres_url, clock=SystemClock(), rng=Random(0))
    await store.migrate()
    await store.open()
    yield store
    await store.close()


class Alone:
    def coordinator(self, store: Store, node: NodeId, **options) -> Coordinator:
        del options["lease_s"]  # a node that is alone has no lease
        return LocalCoordinator(store, node, **options)


class Shared:
    def coordinator(self, store: Store, node: NodeId, **options) -> Coordinator:
        return SqlCoordinator(store, node, **options)


class TestLocalCoordinatorOnSQLite(Alone, CoordinatorContract):
    @pytest.fixture
    async def store(self, sqlite: Store) -> Store:
        return sqlite


class TestLocalCoordinatorOnPostgres(Alone, CoordinatorContract):
    @pytest.fixture
    async def store(self, postgres_store: Store) -> Store:
        return postgres_store


class TestSqlCoordinatorOnSQLite(Shared, SharedCoordinatorContract):
    @pytest.fixture
    async def store(self, sqlite: Store) -> Store:
        return sqlite


class TestSqlCoordinatorOnPostgres(Shared, SharedCoordinatorContract):
    @pytest.fixture
    async def store(self, postgres_store: Store) -> Store:
        return postgres_store
