"""The role of `Leases`: who is alive, and who owns which partition."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence

from holdfast.ids import NodeId
from holdfast.store import Holding, Member
from holdfast.stores.sqlite import lines
from holdfast.stores.sqlite.statements import as_list, run, run_many
from holdfast.stores.sqlite.threads import Threads


class LeasesRole(Threads):
    async def renew(
        self, node: NodeId, *, lease_s: float, queues: Sequence[str], kinds: Sequence[str]
    ) -> None:
        await self._ask_leases(
            lambda leases, now: leases.renew(node, now, lease_s=lease_s, queues=queues, kinds=kinds)
        )

    async def members(self) -> list[Member]:
        found: list[Member] = await self._ask_leases(lambda leases, now: leases.members(now))
        return found

    async def leave(self, nodes: Collection[NodeId], *, ended_only: bool = False) -> None:
        """See `holdfast.store.Leases`.  If we die between the files, the lease ends by itself."""
        alive = {m.node for m in await self.members() if m.is_alive} if ended_only else set()
        gone = [node for node in nodes if node not in alive]

        def work(db: sqlite3.Connection, now: int) -> None:
            run(db, "let_go_all", nodes=as_list(gone))
            run(db, "shares_give_back", nodes=as_list(gone))

        await self._write(work)
        await self._ask_leases(lambda leases, now: leases.drop(gone, now))

    async def holdings(self, queue: str) -> list[Holding]:
        found: list[Holding] = await self._read(lambda db, now: lines.holdings(db, queue))
        if len(found) >= self.partitions:
            return found

        def work(db: sqlite3.Connection, now: int) -> list[Holding]:
            lines.make_partitions(db, queue, self.partitions)
            return lines.holdings(db, queue)

        made: list[Holding] = await self._write(work)
        return made

    async def let_go(self, queue: str, partitions: Collection[int], *, node: NodeId) -> None:
        rows = [(queue, partition, node) for partition in partitions]
        await self._write(lambda db, now: run_many(db, "let_go", rows))

    async def wish(self, queue: str, partitions: Collection[int], *, node: NodeId) -> None:
        rows = [(node, queue, partition) for partition in partitions]
        await self._write(lambda db, now: run_many(db, "wish", rows))
