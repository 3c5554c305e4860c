"""The role of `Agenda`: one bounded step of a duty each."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from holdfast.ids import NodeId
from holdfast.store import Due, Running
from holdfast.stores.sqlite import changes
from holdfast.stores.sqlite.statements import as_list, run
from holdfast.stores.sqlite.threads import Threads
from holdfast.task import State, TaskId, Trigger


class AgendaRole(Threads):
    async def submit_due(self, queue: str, partitions: Collection[int], *, limit: int) -> Due:
        due: Due = await self._write(
            lambda db, now: changes.submit_due(db, now, queue, partitions, limit)
        )
        return due

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
