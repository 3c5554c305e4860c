"""An opened, empty store for tests that need no app."""

from __future__ import annotations

from collections.abc import AsyncIterator
from random import Random

import pytest

from holdfast.address import Address
from holdfast.clock import SystemClock
from holdfast.node.compose import make_store
from holdfast.store import Store
from holdfast.testing.apps import migrate


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[Store]:
    await migrate(store_url)
    store = make_store(Address(url=store_url), clock=SystemClock(), rng=Random(0))
    await store.open()
    yield store
    await store.close()
