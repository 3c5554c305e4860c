"""Several nodes on one store, each with an app, a store and a bus of its own.

They live in one process, but share nothing: what one of them learns from another went through
the database.  A node can be cut off from the store and come back, as after a pause or behind a
broken network.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from random import Random
from string import ascii_lowercase
from typing import Any

from holdfast import Holdfast, State
from holdfast.bus import Bus
from holdfast.coordinator import preferred
from holdfast.node.node import Node
from holdfast.store import Filter, Store
from holdfast.testing.apps import migrate
from holdfast.testing.faults import FaultyStore
from holdfast.testing.recorder import Recorder

Register = Callable[[Holdfast, str], dict[str, Any]]


@dataclass
class Peer:
    """One node of the fleet."""

    name: str
    app: Holdfast
    store: FaultyStore
    buses: list[Bus]
    heard: Recorder
    tasks: dict[str, Any]  # what `register` made, by kind
    _stack: AsyncExitStack
    node: Node = field(init=False)

    @property
    def bus(self) -> Bus:
        return self.buses[0]

    def cut_off(self) -> None:
        """From now on every call to the store fails, the beat's too."""
        self.store.is_down = True

    def back(self) -> None:
        self.store.is_down = False


class Fleet:
    """Nodes that come and go; `register` gives each app its tasks, with the node's name."""

    def __init__(self, url: str, register: Register, **settings: Any) -> None:
        self.url = url
        self.peers: list[Peer] = []
        self._register = register
        self._settings = settings
        self._count = 0

    async def __aenter__(self) -> Fleet:
        await migrate(self.url)
        return self

    async def __aexit__(self, *_: object) -> None:
        for peer in list(self.peers):
            peer.back()
            await self.leave(peer)

    async def join(
        self, *, wrap_bus: Callable[[Bus], Bus] = lambda bus: bus, **settings: Any
    ) -> Peer:
        self._count += 1
        name = ascii_lowercase[(self._count - 1) % 26]
        stores: list[FaultyStore] = []
        buses: list[Bus] = []

        def keep_store(store: Store) -> FaultyStore:
            stores.append(FaultyStore(store, rng=Random(self._count)))
            return stores[0]

        def keep_bus(bus: Bus) -> Bus:
            buses.append(wrap_bus(bus))
            return buses[0]

        app = Holdfast(self.url, rng=Random(self._count), wrap_store=keep_store, wrap_bus=keep_bus)
        tasks = self._register(app, name)
        stack = AsyncExitStack()
        await stack.enter_async_context(app)
        peer = Peer(name, app, stores[0], buses, Recorder(app.events), tasks, stack)
        try:
            peer.node = await stack.enter_async_context(app.node(**(self._settings | settings)))
        except BaseException:
            await stack.aclose()
            raise
        self.peers.append(peer)
        return peer

    async def leave(self, peer: Peer) -> None:
        self.peers.remove(peer)
        await peer._stack.aclose()
        peer.heard.close()
        peer.app.close_sync()

    async def owners(self, queue: str = "default") -> dict[int, str | None]:
        """Who owns which partition, by the names of this fleet; strangers keep their ids."""
        names: dict[Any, str] = {peer.node.id: peer.name for peer in self.peers}
        found = await self.peers[0].store.real.holdings(queue)
        return {one.partition: names.get(one.owner, one.owner) for one in found}

    def shared(self, queue: str = "default") -> dict[int, str | None]:
        """Who should own which partition."""
        names = {peer.node.id: peer.name for peer in self.peers}
        partitions = self.peers[0].store.real.partitions
        return {n: names[id] for n, id in preferred(queue, partitions, list(names)).items()}

    async def until_shared(self, timeout_s: float = 10.0) -> None:
        async with asyncio.timeout(timeout_s):
            while await self.owners() != self.shared():
                await asyncio.sleep(0.01)

    async def until_drained(self, timeout_s: float = 20.0) -> None:
        """Wait until no task is left to run, by the store and in every node's memory."""
        store = self.peers[0].store.real
        left = Filter(states=(State.WAITING, State.SUBMITTED, State.PROCESSING), limit=1)
        async with asyncio.timeout(timeout_s):
            while await store.find(left) or not self.is_idle:
                await asyncio.sleep(0.02)

    @property
    def is_idle(self) -> bool:
        return all(peer.node.is_idle for peer in self.peers)
