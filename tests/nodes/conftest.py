"""An opened, empty store for tests that need no app."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from random import Random
from typing import Any

import pytest

from holdfast.address import Address
from holdfast.clock import SystemClock
from holdfast.node.compose import make_store
from holdfast.store import Store
from holdfast.testing.apps import migrate
from nodes.owner import Owner


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[Store]:
    await migrate(store_url)
    store = make_store(Address(url=store_url), clock=SystemClock(), rng=Random(0))
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def owner_of(store: Store) -> AsyncIterator[Callable[..., Owner]]:
    """Makes owners on the store; all of them are killed at the end."""
    made: list[Owner] = []

    def make(name: str, *, store: Any = store, **settings: Any) -> Owner:
        made.append(Owner(store, name, **settings))
        return made[-1]

    yield make
    for owner in made:
        owner.store.may_record.set()
        await owner.kill()
