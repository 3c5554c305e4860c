"""The pytest plugin for users: the fixture `holdfast`.

    def test_an_order_is_confirmed(holdfast):
        place_order("ada")
        holdfast.assert_enqueued(confirm, to="ada")
        holdfast.run_until_idle_sync()

Your app comes from a fixture `holdfast_app` that you write in conftest.py; without one the
fixture brings an app of its own, as `holdfast.app`.  Nothing happens to a test that does not ask
for it.  The plugin of this project's own suite is another one, see holdfast.testing.plugin.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.testing.harness import Harness

MEMORY = "sqlite:///:memory:"


@pytest.fixture
def holdfast_app() -> Holdfast:
    """The app under test.  Write a fixture of this name that returns yours."""
    from holdfast.app import Holdfast

    return Holdfast(MEMORY)


@pytest.fixture
def holdfast_url() -> str:
    """Where the test's tasks live: SQLite, in memory.  Name your test database's file instead
    when the tested code enqueues in transactions of its own."""
    return MEMORY


@pytest.fixture
def holdfast(holdfast_app: Holdfast, holdfast_url: str) -> Iterator[Harness]:
    """Your app on a store of this test's own, by a clock that you move."""
    from holdfast.testing.harness import harness

    with harness(holdfast_app, holdfast_url) as given:
        yield given
