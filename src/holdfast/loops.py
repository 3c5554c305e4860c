"""The event loop on which a worker lives: uvloop's where it is installed, else asyncio's own.

    pip install 'holdfast[fast]'

Only `holdfast worker` chooses.  A program that runs a node by itself has a loop already.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from importlib.util import find_spec
from typing import Any, TypeVar

from holdfast.errors import ConfigurationError

T = TypeVar("T")

LOOPS = ("auto", "asyncio", "uvloop")


def run(main: Coroutine[Any, Any, T], *, loop: str) -> T:
    """As `asyncio.run`, on the loop that `node.loop` names."""
    with asyncio.Runner(loop_factory=_factory(loop)) as runner:
        return runner.run(main)


def check(loop: str) -> None:
    """Raise ConfigurationError when the loop is not there."""
    if loop == "uvloop" and find_spec("uvloop") is None:
        raise ConfigurationError(
            "node.loop is uvloop, which is not installed: pip install 'holdfast[fast]', "
            "or set it to auto"
        )


def _factory(loop: str) -> Callable[[], asyncio.AbstractEventLoop] | None:
    if loop == "asyncio" or find_spec("uvloop") is None:
        return None
    import uvloop

    made: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return made
