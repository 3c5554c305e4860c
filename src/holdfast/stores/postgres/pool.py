"""A bounded pool of connections, as thin as the hot path needs it.

A call takes the connection that was used last, without a task, a timer or a round trip of its
own.  A connection that was given back in the middle of something is closed, not mended: the
next call makes a new one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

WAIT_S_MAX = 30.0  # for a connection, when all are in use
CLOSE_S_MAX = 10.0  # for calls under way, before their connections are cut


class Pool:
    """At most `size_max` connections; callers beyond that wait in line."""

    def __init__(self, connect: Callable[[], Awaitable[Any]], *, size_max: int) -> None:
        self._connect = connect
        self._size_max = size_max
        self._idle: list[Any] = []
        self._used: set[Any] = set()
        self._connecting = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._drained: asyncio.Future[None] | None = None

    async def take(self) -> Any:
        """A connection that nobody else uses; `TimeoutError` when none is free for long."""
        while True:
            while self._idle:
                connection = self._idle.pop()
                if not connection.is_closed():
                    self._used.add(connection)
                    return connection
            if len(self._used) + self._connecting < self._size_max:
                return await self._made()
            await self._turn()

    def give(self, connection: Any, *, is_sound: bool) -> None:
        """Give a connection back; one that is not sound is closed."""
        self._used.discard(connection)
        if is_sound and not connection.is_closed() and not connection.is_in_transaction():
            self._idle.append(connection)
        else:
            connection.terminate()
        self._wake()
        if self._drained is not None and not self._used and not self._drained.done():
            self._drained.set_result(None)

    async def close(self) -> None:
        """Wait a while for the calls under way, then close every connection."""
        if self._used:
            self._drained = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._drained], timeout=CLOSE_S_MAX)
        for connection in list(self._used):
            connection.terminate()
        idle, self._idle = self._idle, []
        for connection in idle:
            try:
                await connection.close(timeout=CLOSE_S_MAX)
            except (OSError, TimeoutError):
                connection.terminate()

    async def _made(self) -> Any:
        self._connecting += 1
        try:
            connection = await self._connect()
        except BaseException:
            self._connecting -= 1
            self._wake()  # whoever waits tries for itself, and learns the reason for itself
            raise
        self._connecting -= 1
        self._used.add(connection)
        return connection

    async def _turn(self) -> None:
        """Wait until a connection was given back or lost."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(WAIT_S_MAX):
                await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self._wake()  # our turn came and we cannot use it: the next in line can
            raise

    def _wake(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
