"""The roles of `Leases` and `Duties`: who is alive, who owns which partition, who keeps what."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from holdfast.ids import NodeId
from holdfast.ring import DutyRecord, Kept
from holdfast.store import (
    NO_FACTS,
    Holding,
    Look,
    Member,
)
from holdfast.stores.sqlite import lines
from holdfast.stores.sqlite.rows import SECOND, micros, span
from holdfast.stores.sqlite.statements import as_list, run, run_many
from holdfast.stores.sqlite.threads import Threads


class Seen(NamedTuple):
    """What the file said when its version was this."""

    version: tuple[int, int]
    queues: frozenset[str]
    holdings: dict[str, list[Holding]]
    duties: list[tuple[Any, ...]]
    rules_version: int


class LeasesRole(Threads):
    _seen: Seen | None

    async def renew(
        self,
        node: NodeId,
        *,
        lease_s: float,
        queues: Sequence[str],
        kinds: Sequence[str],
        facts: Mapping[str, Any] = NO_FACTS,
    ) -> None:
        await self._ask_leases(
            lambda leases, now: leases.renew(
                node, now, lease_s=lease_s, queues=queues, kinds=kinds, facts=facts
            )
        )

    async def members(self) -> list[Member]:
        found: list[Member] = await self._ask_leases(lambda leases, now: leases.members(now))
        return found

    async def end(self, nodes: Collection[NodeId]) -> None:
        """See `holdfast.store.Leases`.  The lease is first: all the rest follows from its end."""
        await self._ask_leases(lambda leases, now: leases.end(nodes, now))
        await self._write(lambda db, now: _let_go_of_all(db, now, nodes))

    async def ask(self, node: NodeId, what: str | None) -> bool:
        is_known: bool = await self._ask_leases(lambda leases, now: leases.ask(node, now, what))
        return is_known

    async def look(self, queues: Collection[str]) -> Look:
        """See `holdfast.store.Leases`.  While the file is the same, nothing is read again."""
        members = await self.members()
        wanted = frozenset(queues)
        seen = await self._seen_now(wanted)
        for queue, found in seen.holdings.items():
            if len(found) < self.partitions:
                seen.holdings[queue] = await self.holdings(queue)
        now = micros(self._clock.now())
        return Look(members, dict(seen.holdings), _in_time(seen.duties, now), seen.rules_version)

    async def _seen_now(self, queues: frozenset[str]) -> Seen:
        # Asked before the read: what is committed in between makes the next look read again.
        version = (self.data_version(), self._writer.commits)
        seen = self._seen
        if seen is not None and (seen.version, seen.queues) == (version, queues):
            return seen

        def work(db: sqlite3.Connection, now: int) -> Seen:
            holdings = {queue: lines.holdings(db, queue) for queue in queues}
            rules_version = run(db, "meta", name="rules")[0][0]
            return Seen(version, queues, holdings, run(db, "duties"), rules_version)

        found: Seen = await self._read(work)
        self._seen = found
        return found

    async def leave(self, nodes: Collection[NodeId], *, ended_only: bool = False) -> None:
        """See `holdfast.store.Leases`.  If we die between the files, the lease ends by itself."""
        alive = {m.node for m in await self.members() if m.is_alive} if ended_only else set()
        gone = [node for node in nodes if node not in alive]

        def work(db: sqlite3.Connection, now: int) -> None:
            _let_go_of_all(db, now, gone)
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

    async def duties(self) -> list[DutyRecord]:
        found: list[DutyRecord] = await self._read(lambda db, now: _in_time(run(db, "duties"), now))
        return found

    async def keep_duties(self, kept: Sequence[Kept], *, node: NodeId) -> set[str]:
        def work(db: sqlite3.Connection, now: int) -> set[str]:
            written = set()
            for name, number, rest_s in kept:
                params = {"name": name, "node": node, "due_at": now + span(rest_s)}
                if number:
                    rows = run(db, "duty_keep", number=number, **params)
                else:
                    rows = run(db, "duty_make", **params)
                written |= {name for (name,) in rows}
            return written

        names: set[str] = await self._write(work)
        return names


def _in_time(rows: Sequence[tuple[Any, ...]], now: int) -> list[DutyRecord]:
    return [
        DutyRecord(name, number, holder, (due_at - now) / SECOND)
        for name, number, holder, due_at in rows
    ]


def _let_go_of_all(db: sqlite3.Connection, now: int, nodes: Collection[NodeId]) -> None:
    run(db, "let_go_all", nodes=as_list(nodes))
    run(db, "duties_drop", nodes=as_list(nodes), now=now)
