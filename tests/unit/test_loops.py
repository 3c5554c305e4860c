"""Which event loop a worker gets, and what is said when it is not there."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import loops
from holdfast.errors import ConfigurationError


async def the_loop() -> str:
    return type(asyncio.get_running_loop()).__module__


@pytest.fixture
def without_uvloop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "find_spec", lambda name: None)


@pytest.mark.parametrize("loop", ["auto", "uvloop"])
def test_uvloop_is_taken_where_it_is_installed(loop: str) -> None:
    loops.check(loop)

    assert loops.run(the_loop(), loop=loop) == "uvloop"


def test_asyncio_is_taken_when_it_is_asked_for() -> None:
    assert loops.run(the_loop(), loop="asyncio") == "asyncio.unix_events"


@pytest.mark.usefixtures("without_uvloop")
def test_asyncio_is_taken_where_there_is_no_other() -> None:
    loops.check("auto")

    assert loops.run(the_loop(), loop="auto") == "asyncio.unix_events"


@pytest.mark.usefixtures("without_uvloop")
def test_a_loop_that_was_named_and_is_missing_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(ConfigurationError, match=r"pip install 'holdfast\[fast\]'"):
        loops.check("uvloop")
