"""The portal: one event loop in a thread of its own, for callers without a loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Portal:
    """Runs coroutines on its own loop; started at the first use."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    @property
    def is_started(self) -> bool:
        return self._loop is not None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The portal's loop, running."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="holdfast-portal", daemon=True
                )
                self._thread.start()
            return self._loop

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine there and wait for it here; RuntimeError on the portal's own thread."""
        if self._thread is threading.current_thread():
            work.close()
            raise RuntimeError(
                "a …_sync method was called on the event loop that it waits for: await the "
                "method without _sync instead"
            )
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def close(self) -> None:
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(5)
            loop.close()
