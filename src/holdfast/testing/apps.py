"""An app on a fresh store, for tests: migrated when it opens, closed and checked when it ends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from holdfast.address import Address
from holdfast.app import Holdfast
from holdfast.clock import SystemClock
from holdfast.node.compose import make_store


async def migrate(url: str, schema: str = "holdfast") -> None:
    """Bring the store at this address to the schema of this code."""
    store = make_store(Address(url=url, schema=schema), clock=SystemClock(), rng=Random(0))
    try:
        await store.migrate()
    finally:
        await store.close()


@asynccontextmanager
async def opened(app: Holdfast) -> AsyncIterator[Holdfast]:
    """The app with its schema in place; everything it opened is closed at the end."""
    await migrate(app.config.url, app.config.schema)
    try:
        async with app:
            yield app
    finally:
        app.close_sync()


def fresh(url: str, **options: Any) -> Holdfast:
    """An app with a fixed seed, so that a failing test fails again."""
    return Holdfast(url, rng=Random(1), **options)
