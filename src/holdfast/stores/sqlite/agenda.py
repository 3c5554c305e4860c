"""The role of `Agenda`: one bounded step of a duty each."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping

from holdfast.ids import NodeId
from holdfast.store import Due, Overdue, Running
from holdfast.stores.sqlite import changes
from holdfast.stores.sqlite.rows import moment_or_none
from holdfast.stores.sqlite.statements import as_list, run
from holdfast.stores.sqlite.threads import Threads
from holdfast.task import State, TaskId, Trigger


class AgendaRole(Threads):
    async def submit_due(self, *, limit: int) -> Due:
        """See `holdfast.store.Agenda`.  While nothing is due, nothing is written."""
        next_at, is_due = await self._read(lambda db, now: _next_due(db, now))
        if not is_due:
            return Due([], moment_or_none(next_at))
        due: Due = await self._write(lambda db, now: changes.submit_due(db, now, limit))
        return due

    async def submit_overdue(self, *, deadline_s: float, limit: int) -> list[Trigger]:
        found: list[Trigger] = await self._write(
            lambda db, now: changes.submit_overdue(db, now, deadline_s=deadline_s, limit=limit)
        )
        return found

    async def overdue(self, *, limit: int) -> list[Overdue]:
        rows = await self._read(lambda db, now: run(db, "overdue", now=now, limit=limit))
        return [Overdue._make(row) for row in rows]

    async def resume_overdue(
        self, tasks: Mapping[TaskId, int], *, deliveries_max: int
    ) -> list[Trigger]:
        named = dict(tasks)
        triggers: list[Trigger] = await self._write(
            lambda db, now: changes.resume_overdue(db, named, deliveries_max=deliveries_max)
        )
        return triggers

    async def postpone(self, tasks: Mapping[TaskId, int], *, deadline_s: float) -> None:
        named = dict(tasks)
        await self._write(lambda db, now: changes.postpone(db, now, named, deadline_s=deadline_s))

    async def resume_lost(
        self, nodes: Collection[NodeId], *, deliveries_max: int, limit: int
    ) -> list[Trigger]:
        """See `holdfast.store.Agenda`.

        The leases are read first; a node that renews after that finds its tasks at a newer
        version, and its outcomes are refused.
        """
        is_alive = await self._ask_leases(lambda leases, now: leases.is_alive(now))
        gone = [node for node in nodes if not is_alive(node)]
        if not gone:
            return []
        triggers: list[Trigger] = await self._write(
            lambda db, now: changes.resume_lost(
                db, now, gone, deliveries_max=deliveries_max, limit=limit
            )
        )
        return triggers

    async def running_of(self, node: NodeId) -> list[Running]:
        rows = await self._read(lambda db, now: run(db, "running_of_node", node=node))
        return [Running._make(row) for row in rows]

    async def moved_on(self, node: NodeId, held: Mapping[TaskId, int]) -> list[TaskId]:
        if not held:
            return []
        known = dict(held)
        rows = await self._read(lambda db, now: run(db, "settle_look", ids=as_list(known)))
        still = {id for id, *rest in rows if rest == [known[id], State.PROCESSING, node]}
        return [id for id in known if id not in still]

    async def park(self, tasks: Mapping[TaskId, int], error: str) -> list[TaskId]:
        named = dict(tasks)
        moved: list[TaskId] = await self._write(lambda db, now: changes.park(db, now, named, error))
        return moved

    async def clean(self, *, keep_days: float, limit: int) -> int:
        """See `holdfast.store.Agenda`.  At most `limit` tasks a call."""
        count: int = await self._write(
            lambda db, now: changes.clean(db, now, keep_days=keep_days, limit=limit)
        )
        return count


def _next_due(db: sqlite3.Connection, now: int) -> tuple[int | None, bool]:
    next_at = changes.next_due(db)
    return next_at, next_at is not None and next_at <= now
