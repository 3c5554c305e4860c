"""How seldom a worker process looks for cyclic garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from holdfast import collect_seldom


@pytest.fixture
def collector() -> Iterator[None]:
    """Python's settings as they were."""
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


def test_what_is_there_is_never_looked_through_again_and_new_garbage_seldom(collector: None):
    later = gc.get_threshold()[1:]

    collect_seldom()

    assert gc.get_freeze_count() > 1_000
    assert gc.get_threshold() == (20_000, *later)
