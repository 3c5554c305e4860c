"""Membership by lease rows in the store.

Each node keeps one lease row; live nodes that serve a queue share its partitions by rendezvous
hashing.  A partition is taken only when its owner has let go or the owner's lease has ended; a
preferred node records its wish and the owner lets go, so two views of the members never flap.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import inf
from typing import Any

from holdfast.coordinator import Share, View, preferred
from holdfast.ids import NodeId
from holdfast.ring import Kept
from holdfast.store import (
    NO_FACTS,
    Holding,
    Store,
)


class SqlCoordinator:
    """One node's part in the membership."""

    def __init__(
        self,
        store: Store,
        node: NodeId,
        *,
        queues: Sequence[str],
        kinds: Sequence[str],
        lease_s: float,
    ) -> None:
        self._store = store
        self._node = node
        self._queues = queues
        self._kinds = kinds
        self._lease_s = lease_s

    async def beat(
        self, *, retiring: bool = False, renews: bool = True, facts: Mapping[str, Any] = NO_FACTS
    ) -> View:
        if renews:
            await self._store.renew(
                self._node,
                lease_s=self._lease_s,
                queues=() if retiring else self._queues,  # the others count those who serve
                kinds=self._kinds,
                facts=facts,
            )
        look = await self._store.look(self._queues)
        alive = [member for member in look.members if member.is_alive]
        shares, owned, kinds = {}, {}, {}
        for queue, holdings in look.holdings.items():
            serving = [member for member in alive if queue in member.queues]
            nodes = sorted(member.node for member in serving)
            owned[queue] = {h.partition: h.epoch for h in holdings if h.owner == self._node}
            if retiring:
                shares[queue] = Share({}, list(owned[queue]))
            else:
                shares[queue] = await self._share(queue, holdings, nodes)
            kinds[queue] = frozenset(kind for member in serving for kind in member.kinds)
        return View(
            shares,
            owned,
            [m.node for m in look.members if not m.is_alive],
            kinds,
            # Who retires takes on nothing new, nor is it waited for.
            frozenset(member.node for member in alive if member.queues),
            tuple(look.duties),
            next((member.asked for member in alive if member.node == self._node), None),
            look.rules_version,
            frozenset(queue for member in alive for queue in member.queues),
            min((member.left_s for member in alive if member.node != self._node), default=inf),
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

    async def _share(self, queue: str, holdings: list[Holding], nodes: list[NodeId]) -> Share:
        """What to claim, what to let go of; wishes are recorded on the way."""
        claim: dict[int, int] = {}
        let_go: list[int] = []
        wishes: list[int] = []
        owners = preferred(queue, len(holdings), nodes or [self._node])
        for holding in holdings:
            is_mine = holding.owner == self._node
            wanted_by = owners[holding.partition]
            if is_mine and wanted_by != self._node and holding.wish == wanted_by:
                let_go.append(holding.partition)
            elif not is_mine and wanted_by == self._node:
                if holding.owner is None or holding.owner not in nodes:
                    claim[holding.partition] = holding.epoch
                elif holding.wish != self._node:
                    wishes.append(holding.partition)
        if wishes:
            await self._store.wish(queue, wishes, node=self._node)
        return Share(claim, let_go)
