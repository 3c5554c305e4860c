"""The coordinator's role: who is alive, and who owns which partition."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from holdfast.ids import NodeId
from holdfast.store import Holding, Member
from holdfast.stores.postgres.connection import Database


class PostgresLeases:
    """`holdfast.store.Leases`: the promises are written there."""

    _database: Database

    @property
    def partitions(self) -> int:
        raise NotImplementedError

    async def renew(
        self, node: NodeId, *, lease_s: float, queues: Sequence[str], kinds: Sequence[str]
    ) -> None:
        params = {"node": node, "lease_s": lease_s, "queues": list(queues), "kinds": list(kinds)}
        await self._database.write("renew", params)

    async def members(self) -> list[Member]:
        rows = await self._database.read("members", {})
        return [
            Member(NodeId(node), tuple(queues), tuple(kinds), is_alive)
            for node, queues, kinds, is_alive in rows
        ]

    async def leave(self, nodes: Collection[NodeId], *, ended_only: bool = False) -> None:
        if nodes:
            params = {"nodes": sorted(nodes), "ended_only": ended_only}
            await self._database.write("leave", params)

    async def holdings(self, queue: str) -> list[Holding]:
        rows = await self._database.read("holdings", {"queue": queue})
        if len(rows) < self.partitions:
            await self._database.write(
                "make_partitions", {"queue": queue, "count": self.partitions}
            )
            rows = await self._database.read("holdings", {"queue": queue})
        return [Holding._make(row) for row in rows]

    async def let_go(self, queue: str, partitions: Collection[int], *, node: NodeId) -> None:
        if partitions:
            params = {"queue": queue, "partitions": sorted(partitions), "node": node}
            await self._database.write("let_go", params)

    async def wish(self, queue: str, partitions: Collection[int], *, node: NodeId) -> None:
        if partitions:
            params = {"queue": queue, "partitions": sorted(partitions), "node": node}
            await self._database.write("wish", params)
