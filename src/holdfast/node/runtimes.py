"""Runtimes: what an app has opened, one for each event loop that uses it.

Programs without a loop use the portal's.  On SQLite all loops of a process share one store: it
must stay the only checkpointer, and `:memory:` is a database of its own for whoever opens it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from random import Random
from typing import Any, TypeVar

from holdfast.address import Address
from holdfast.bus import Bus
from holdfast.clock import Clock
from holdfast.errors import StoreUnavailable
from holdfast.node.compose import Runtime, make_store, open_runtime
from holdfast.portal import Portal
from holdfast.store import Store
from holdfast.telemetry.events import Events

T = TypeVar("T")


class Runtimes:
    """The open runtimes of one address.  May be used from every thread."""

    def __init__(
        self,
        address: Address,
        *,
        clock: Clock,
        rng: Random,
        events: Events,
        wrap_store: Callable[[Store], Store] | None = None,
        wrap_bus: Callable[[Bus], Bus] | None = None,
    ) -> None:
        self._address = address
        self._clock = clock
        self._rng = rng
        self._events = events
        self._wrap_store = wrap_store
        self._wrap_bus = wrap_bus
        self._open: dict[asyncio.AbstractEventLoop, Runtime] = {}
        self._opening: dict[asyncio.AbstractEventLoop, asyncio.Lock] = {}
        self._shared: Future[Store] | None = None
        self._guard = threading.Lock()
        self._portal = Portal()

    @property
    def here(self) -> Runtime | None:
        """The runtime of the running loop, if it has opened one already."""
        return self._open.get(asyncio.get_running_loop())

    async def get(self) -> Runtime:
        """The runtime of the running loop, opened at its first use."""
        loop = asyncio.get_running_loop()
        runtime = self._open.get(loop)
        if runtime is not None:
            return runtime
        async with self._opening.setdefault(loop, asyncio.Lock()):
            runtime = self._open.get(loop)
            if runtime is None:
                runtime = await self._make()
                self._open[loop] = runtime
        self._opening.pop(loop, None)
        return runtime

    def any(self) -> Runtime:
        """A runtime whose loop is alive; the portal's when there is no other."""
        for loop, runtime in list(self._open.items()):
            if loop.is_running():
                return runtime
        return self._portal.call(self.get())

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine for sync code, on the portal's loop."""
        return self._portal.call(work)

    async def close(self) -> None:
        """Close what the running loop has opened."""
        runtime = self._open.pop(asyncio.get_running_loop(), None)
        if runtime is not None:
            await runtime.close()
        if not self._portal.is_started:
            await self._close_shared()

    def close_sync(self) -> None:
        """Close what the portal has opened."""
        if self._portal.is_started:
            self._portal.call(self.close())
            self._portal.call(self._close_shared())
            self._portal.close()

    def close_all(self) -> None:
        """Close everything, also what loops have left open that do not run any more."""
        for loop in [loop for loop in self._open if not loop.is_running()]:
            del self._open[loop]
        if self._shared is not None:
            _ = self._portal.loop  # the store is closed on a loop that is alive
        self.close_sync()

    async def _make(self) -> Runtime:
        with self._guard:
            for loop in [loop for loop in self._open if loop.is_closed()]:
                del self._open[loop]
        is_shared = self._address.url.startswith("sqlite:")
        store = await self._shared_store() if is_shared else self._new_store()
        return await open_runtime(
            self._address,
            store,
            events=self._events,
            owns_store=not is_shared,
            wrap_bus=self._wrap_bus,
        )

    async def _shared_store(self) -> Store:
        """The open store of all loops; whoever comes first opens it, the others wait for that."""
        while True:
            with self._guard:
                shared = self._shared
                if shared is None:
                    opening = self._shared = Future()
                    opening.set_running_or_notify_cancel()  # no waiter can cancel it for all
                    break
            with suppress(StoreUnavailable):  # then it is our turn to try, and to say why not
                return await asyncio.wrap_future(shared)
        try:
            store = self._new_store()
            await store.open()
        except BaseException:
            self._shared = None
            opening.set_exception(StoreUnavailable("the store could not be opened"))
            raise
        opening.set_result(store)
        return store

    def _new_store(self) -> Store:
        store = make_store(self._address, clock=self._clock, rng=self._rng)
        return self._wrap_store(store) if self._wrap_store else store

    async def _close_shared(self) -> None:
        with self._guard:
            shared = self._shared
            is_opening = any(lock.locked() for lock in self._opening.values())
            if shared is None or not shared.done() or self._open or is_opening:
                return  # somebody uses it, or is about to
            self._shared = None
        await shared.result().close()
