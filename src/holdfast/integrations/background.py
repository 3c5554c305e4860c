"""A node beside a program that has no event loop of its own."""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import Sequence
from typing import Any

from holdfast.app import Holdfast


class BackgroundNode:
    """A node on the app's own thread; `start` and `stop` may be called twice.

    It stops when the process exits, at the latest: running attempts finish first.
    """

    def __init__(
        self, holdfast: Holdfast, queues: str | Sequence[str] | None = None, **settings: Any
    ) -> None:
        self.holdfast = holdfast
        self._queues = queues
        self._settings = settings
        self._guard = threading.Lock()
        self._serving: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()

    @property
    def is_running(self) -> bool:
        return self._serving is not None

    def start(self) -> None:
        """Start the node unless it runs; it serves when this returns."""
        with self._guard:
            if self._serving is None:
                self._serving = self.holdfast.call(self._started())
                atexit.register(self.stop)

    def stop(self) -> None:
        """Let running attempts finish, for at most `drain_s`, and close what was opened."""
        with self._guard:
            serving, self._serving = self._serving, None
            if serving is not None:
                atexit.unregister(self.stop)
                self.holdfast.call(self._ended(serving))
            self.holdfast.close_sync()

    async def _started(self) -> asyncio.Task[None]:
        started = asyncio.Event()
        self._stop = asyncio.Event()
        serving = asyncio.create_task(self._serve(started))
        waiting = asyncio.create_task(started.wait())
        await asyncio.wait([serving, waiting], return_when=asyncio.FIRST_COMPLETED)
        if not started.is_set():
            waiting.cancel()
            await serving  # raises why it did not start
        return serving

    async def _serve(self, started: asyncio.Event) -> None:
        async with self.holdfast.node(self._queues, **self._settings):
            started.set()
            await self._stop.wait()

    async def _ended(self, serving: asyncio.Task[None]) -> None:
        self._stop.set()
        await serving
