"""What is known about a task that somebody asks about: gathered once, by a few bounded queries.

What only a node's memory knows (its free slots between two beats, the counts of a booking policy)
is not here, and the sentences say so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast.ids import NodeId
from holdfast.insight import Standing
from holdfast.limit import Rules
from holdfast.ring import DutyRecord
from holdfast.store import Member, Store
from holdfast.task import TaskId


@dataclass(frozen=True, slots=True)
class Known:
    standing: Standing
    rules: Rules
    members: Sequence[Member]
    duties: Sequence[DutyRecord]
    policies: Mapping[str, str]  # what booking policies in code say of themselves, by their names

    def member(self, node: str | None) -> Member | None:
        return next((member for member in self.members if member.node == node), None)

    def is_alive(self, node: str | None) -> bool:
        member = self.member(node)
        return member is not None and member.is_alive

    @property
    def serving(self) -> list[Member]:
        """Live nodes that serve the task's queue."""
        queue = self.standing.task.queue
        return [member for member in self.members if member.is_alive and queue in member.queues]

    @property
    def able(self) -> list[Member]:
        """Those of them that have a handler for its kind."""
        return [member for member in self.serving if self.standing.task.kind in member.kinds]

    @property
    def waker(self) -> NodeId | None:
        """The live node that submits the task when its time has come.

        Whoever keeps the duty; where nobody has ever kept it, the owner of the task's partition.
        """
        kept = [duty for duty in self.duties if duty.name == "waker"]
        node = kept[0].holder if kept else self.standing.owner
        return node if self.is_alive(node) else None


async def gather(
    store: Store, id: TaskId, *, policies: Mapping[str, str] | None = None
) -> Known | None:
    """Ask the store; None: it has no such task.  Nothing is written."""
    standing = await store.standing(id)
    if standing is None:
        return None
    return Known(
        standing,
        await store.rules(standing.task.queue),
        await store.members(),
        await store.duties(),
        policies or {},
    )
