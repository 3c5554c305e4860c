"""The coordinator's roles: who is alive, who owns which partition, and who keeps which duty."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import asyncpg

from holdfast.errors import HoldfastError
from holdfast.ids import NodeId
from holdfast.ring import DutyRecord, Kept
from holdfast.store import (
    NO_FACTS,
    Holding,
    Look,
    Member,
)
from holdfast.stores.postgres.connection import Database

REGISTER_TRIES_MAX = 20


class PostgresLeases:
    """`holdfast.store.Leases` and `Duties`: the promises are written there."""

    _database: Database

    @property
    def partitions(self) -> int:
        raise NotImplementedError

    async def renew(
        self,
        node: NodeId,
        *,
        lease_s: float,
        queues: Sequence[str],
        kinds: Sequence[str],
        facts: Mapping[str, Any] = NO_FACTS,
    ) -> None:
        params = {
            "node": node,
            "lease_s": lease_s,
            "queues": list(queues),
            "kinds": list(kinds),
            "facts": json.dumps(dict(facts)),
        }
        for tries_left in reversed(range(REGISTER_TRIES_MAX)):
            try:
                await self._database.write("renew", params)
                return
            except (HoldfastError, asyncpg.PostgresError) as error:
                # Another node has registered under the same number at the same time.
                is_taken = isinstance(error.__cause__ or error, asyncpg.UniqueViolationError)
                if not is_taken or not tries_left:
                    raise

    async def members(self) -> list[Member]:
        return [_member(row) for row in await self._database.read("members", {})]

    async def look(self, queues: Collection[str]) -> Look:
        rows = await self._database.read("look", {"queues": sorted(queues)})
        members, held, duties, version = rows[0]
        holdings: dict[str, list[Holding]] = {queue: [] for queue in queues}
        for queue, *holding in held:
            holdings[queue].append(Holding._make(holding))
        for queue, found in holdings.items():
            if len(found) < self.partitions:
                holdings[queue] = await self.holdings(queue)
        return Look(
            [_member(row) for row in members],
            holdings,
            [DutyRecord._make(row) for row in duties],
            version,
        )

    async def end(self, nodes: Collection[NodeId]) -> None:
        if nodes:
            await self._database.write("end_leases", {"nodes": sorted(nodes)})

    async def ask(self, node: NodeId, what: str | None) -> bool:
        return bool(await self._database.write("ask", {"node": node, "what": what}))

    async def duties(self) -> list[DutyRecord]:
        return [DutyRecord._make(row) for row in await self._database.read("duties", {})]

    async def keep_duties(self, kept: Sequence[Kept], *, node: NodeId) -> set[str]:
        if not kept:
            return set()
        params = {
            "node": node,
            "names": [one.name for one in kept],
            "numbers": [one.number for one in kept],
            "rests_s": [one.rest_s for one in kept],
        }
        return {name for (name,) in await self._database.write("keep_duties", params)}

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


def _member(row: Sequence[Any]) -> Member:
    node, queues, kinds, is_alive, number, left_s, started_at, facts, asked = row
    return Member(
        NodeId(node),
        tuple(queues),
        tuple(kinds),
        is_alive,
        number,
        left_s,
        started_at,
        json.loads(facts),
        asked,
    )
