"""Alone: this node takes every partition and keeps it.

For one process by itself, as in tests and simulations.  Epochs are still raised in the store, so
an earlier incarnation of the process that wakes up late is refused like any old owner.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from holdfast.coordinator import Share, View
from holdfast.ids import NodeId
from holdfast.ring import Kept
from holdfast.store import (
    NO_FACTS,
    Store,
)


class LocalCoordinator:
    """A coordinator for exactly one node."""

    def __init__(
        self, store: Store, node: NodeId, *, queues: Sequence[str], kinds: Sequence[str]
    ) -> None:
        self._store = store
        self._node = node
        self._queues = queues
        self._kinds = frozenset(kinds)

    async def beat(
        self, *, retiring: bool = False, renews: bool = True, facts: Mapping[str, Any] = NO_FACTS
    ) -> View:
        look = await self._store.look(self._queues)
        shares, owned = {}, {}
        for queue, holdings in look.holdings.items():
            owned[queue] = {h.partition: h.epoch for h in holdings if h.owner == self._node}
            claim = {h.partition: h.epoch for h in holdings if h.owner != self._node}
            shares[queue] = Share({}, list(owned[queue])) if retiring else Share(claim, [])
        return View(
            shares,
            owned,
            [],
            dict.fromkeys(self._queues, self._kinds),
            frozenset() if retiring else frozenset({self._node}),
            tuple(look.duties),
            None,
            look.rules_version,
            frozenset(self._queues),
        )

    async def claimed(self, queue: str, epochs: dict[int, int]) -> dict[int, int]:
        return await self._store.claim(queue, epochs, node=self._node)

    async def let_go(self, queue: str, partitions: Collection[int]) -> None:
        await self._store.let_go(queue, partitions, node=self._node)

    async def keep(self, kept: Sequence[Kept]) -> set[str]:
        return await self._store.keep_duties(kept, node=self._node)

    async def forget(self, nodes: Collection[NodeId]) -> None:
        await self._store.leave(nodes, ended_only=True)

    async def leave(self) -> None:
        await self._store.leave([self._node])
