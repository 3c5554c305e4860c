"""An app on each store; at the end every count of every node it had must be back to 0."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import asyncpg
import pytest

from holdfast import Holdfast
from holdfast.address import sqlite_path
from holdfast.node.node import Node
from holdfast.testing.apps import opened
from holdfast.testing.recorder import Recorder


class Watched(Holdfast):
    """An app that remembers its nodes."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.nodes: list[Node] = []

    @asynccontextmanager
    async def node(self, *args: Any, **settings: Any) -> AsyncIterator[Node]:
        async with super().node(*args, **settings) as node:
            self.nodes.append(node)
            yield node


@pytest.fixture
async def make_app(store_url: str) -> AsyncIterator[Callable[..., Any]]:
    """`await make_app(…)`: an open app on an empty store; another one shares the store."""
    apps: list[Watched] = []
    contexts: list[Any] = []

    async def make(**options: Any) -> Watched:
        app = Watched(store_url, rng=Random(len(apps) + 1), **options)
        contexts.append(opened(app))
        apps.append(await contexts[-1].__aenter__())
        return app

    yield make
    for context in reversed(contexts):
        await context.__aexit__(None, None, None)
    left = [node.in_flight for app in apps for node in app.nodes]
    assert not any(left), f"slots still booked: {left}"


@pytest.fixture
async def app(make_app: Callable[..., Any]) -> Holdfast:
    return await make_app()


@pytest.fixture
def heard(app: Holdfast) -> Recorder:
    return Recorder(app.events)


class Ledger:
    """A business table in the same database, written by transactional handlers."""

    def __init__(self, url: str, path: str | None) -> None:
        self._url = url
        self._path = path

    async def make(self) -> None:
        await self._run("CREATE TABLE ledger (entry TEXT NOT NULL)")

    @staticmethod
    async def write(connection: Any, entry: str) -> None:
        """Write on the connection that the handler was given."""
        done = connection.execute(f"INSERT INTO ledger (entry) VALUES ('{entry}')")
        if hasattr(done, "__await__"):
            await done

    async def entries(self) -> list[str]:
        return sorted(row[0] for row in await self._run("SELECT entry FROM ledger"))

    async def _run(self, text: str) -> list[Any]:
        if self._path is not None:
            import sqlite3

            db = sqlite3.connect(self._path, timeout=5)
            try:
                with db:
                    return db.execute(text).fetchall()
            finally:
                db.close()
        connection = await asyncpg.connect(self._url)
        try:
            return await connection.fetch(text)
        finally:
            await connection.close()


@pytest.fixture
async def ledger(store_url: str) -> Ledger:
    ledger = Ledger(store_url, sqlite_path(store_url) if store_url.startswith("sqlite") else None)
    await ledger.make()
    return ledger
