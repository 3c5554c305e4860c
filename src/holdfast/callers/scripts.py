"""Playing a store's script on whatever connection the caller has."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from holdfast.sql.query import Query, Script

T = TypeVar("T")

Execute = Callable[[Query, dict[str, Any]], list[Any]]
ExecuteAsync = Callable[[Query, dict[str, Any]], Awaitable[list[Any]]]


def play(script: Script[T], execute: Execute) -> T:
    """Run the script to its end; an error of a statement ends it."""
    try:
        query, params = next(script)
        while True:
            query, params = script.send(execute(query, params))
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        script.close()


async def play_async(script: Script[T], execute: ExecuteAsync) -> T:
    """The same for a driver that must be awaited."""
    try:
        query, params = next(script)
        while True:
            query, params = script.send(await execute(query, params))
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        script.close()


class OnlySync:
    """For a driver without `async`: what the app must not call."""

    is_async = False

    async def run(self, script: Script[T]) -> T:
        raise AssertionError("a sync driver runs on the caller's thread: run_sync")


class OnlyAsync:
    """For an async driver: what the app must not call."""

    is_async = True

    def run_sync(self, script: Script[T]) -> T:
        raise AssertionError("an async driver is awaited: run")
