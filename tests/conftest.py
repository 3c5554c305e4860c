"""Fixtures of the whole suite: stores to test on, and a look for what a test left behind."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from random import Random

import pytest

from databases import Databases, alone
from holdfast.clock import SystemClock
from holdfast.testing.apps import migrate
from holdfast.testing.pgbouncer import PgBouncer, is_installed
from holdfast.testing.postgres import ExternalServer, PrivateServer, Server
from leaks import complaints, no_task_left, running, watch_tasks

__all__ = ["no_task_left"]

# The suite starts thousands of nodes: a process for each would cost minutes.  Tests of the renewer
# ask for one.
os.environ.setdefault("HOLDFAST_NODE__RENEWER", "loop")

pytest_plugins = ["holdfast.testing.plugin", "pytester"]

_RUNNING = pytest.StashKey[tuple]()
_SERVERS: set[int] = set()  # servers of the session: they outlive the test that needed them first
_NUMBERS = count(1)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """The PostgreSQL of this run: a private one, or the one that HOLDFAST_TEST_PG names."""
    if url := os.environ.get("HOLDFAST_TEST_PG"):
        yield ExternalServer(url)
        return
    with PrivateServer() as server:
        _SERVERS.add(server.pid)
        yield server


@pytest.fixture(scope="session")
def migrated(postgres: Server) -> Iterator[str]:
    """A database with our tables, to be copied: that takes a tenth of the time of making them."""
    name = f"holdfast_{os.getpid()}_migrated"
    # In a thread: an async fixture may be the first that asks for it, and has a loop already.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, migrate(postgres.create_database(name))).result()
    yield name
    postgres.drop_database(name)


@pytest.fixture(scope="session")
def databases(postgres: Server, migrated: str) -> Iterator[Databases]:
    """Copies of it."""
    databases = Databases(postgres, migrated)
    yield databases
    databases.close()


@pytest.fixture
def postgres_url(postgres: Server, databases: Databases) -> Iterator[str]:
    """A database with empty tables; after the test nobody may be connected to it."""
    name = databases.taken()
    yield postgres.url(name)
    databases.given_back(name)


@pytest.fixture
def bare_postgres_url(postgres: Server) -> Iterator[str]:
    """A fresh database that knows nothing of us."""
    name = f"holdfast_{os.getpid()}_bare_{next(_NUMBERS)}"
    yield postgres.create_database(name)
    try:
        alone(postgres, name)
    finally:
        postgres.drop_database(name)


@pytest.fixture
def private_postgres() -> Iterator[PrivateServer]:
    """A server for this test alone: it may be killed, restarted and filled."""
    with PrivateServer() as server:
        yield server


@pytest.fixture
def pgbouncer(postgres: Server, postgres_url: str) -> Iterator[PgBouncer]:
    """A pooler in transaction mode in front of `postgres`; it ends before the fresh database."""
    if not is_installed():
        pytest.skip("pgbouncer is not installed")
    with PgBouncer(postgres.url()) as pooler:
        yield pooler


@pytest.fixture
def pgbouncer_url(pgbouncer: PgBouncer, postgres_url: str) -> str:
    """The fresh database of `postgres_url`, through the pooler."""
    return pgbouncer.url(postgres_url.rpartition("/")[2])


@pytest.fixture
def bare_pgbouncer_url(bare_postgres_url: str, pgbouncer: PgBouncer) -> str:
    """The database of `bare_postgres_url`, through the pooler."""
    return pgbouncer.url(bare_postgres_url.rpartition("/")[2])


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store; the test runs on each of them, and proves its line on both."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'app.db'}"
    return request.getfixturevalue("postgres_url")


@pytest.fixture(params=["sqlite", "postgres"])
def bare_store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a store without tables."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'app.db'}"
    return request.getfixturevalue("bare_postgres_url")


@pytest.fixture
def clock() -> SystemClock:
    return SystemClock()


@pytest.fixture
def rng() -> Random:
    return Random(0)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    watch_tasks(items)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[_RUNNING] = running()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    yield
    left = complaints(item.stash[_RUNNING], _SERVERS)
    assert not left, "left behind: " + "; ".join(left)
