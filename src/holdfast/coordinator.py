"""The coordinator: who is alive, and who dispatches which partition.

Ownership only avoids useless competition and makes order decidable in one place; safety rests
on versions and epochs in the store.  A coordinator may therefore be wrong for a while: two
nodes that both believe to own a partition lose nothing, because the older epoch is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from typing import Any, Protocol

from holdfast.ids import NodeId
from holdfast.ring import DutyRecord, Kept
from holdfast.store import NO_FACTS


@dataclass(frozen=True, slots=True)
class Share:
    """What this node should do about one queue now."""

    claim: dict[int, int]  # partitions to take, at the epochs seen
    let_go: list[int]  # partitions to give up: another node is preferred


@dataclass(frozen=True, slots=True)
class View:
    """What one beat found out."""

    shares: dict[str, Share]
    owned: dict[
        str, dict[int, int]
    ]  # what the store says this node owns: queue -> partition -> epoch
    ended: list[NodeId]  # nodes whose lease has ended: resume their tasks, then forget them
    kinds: dict[str, frozenset[str]]  # kinds that some live node handles, by queue
    alive: frozenset[NodeId] = frozenset()  # the ring: nodes that are registered and live
    duties: tuple[DutyRecord, ...] = ()
    asked: str | None = None  # what a person wants this node to do
    rules_version: int = 0  # of what was set at run time
    served: frozenset[str] = frozenset()  # queues that some live node serves
    ends_in_s: float = inf  # until the first lease of the others ends, if nobody renews it


class Coordinator(Protocol):
    async def beat(
        self, *, retiring: bool = False, renews: bool = True, facts: Mapping[str, Any] = NO_FACTS
    ) -> View:
        """Renew this node's lease and look at the others; every third of a lease or sooner.

        With `renews=False` only look.  `facts` is what the node tells of itself.

        A retiring node keeps its lease for the attempts that still run, but no share: everything
        that it owns is to be let go, and the others take it.
        """
        ...

    async def claimed(self, queue: str, epochs: dict[int, int]) -> dict[int, int]:
        """Take the partitions at the epochs seen; answer those taken, with their new epochs."""
        ...

    async def let_go(self, queue: str, partitions: Collection[int]) -> None:
        """Give the partitions up, after their last write."""
        ...

    async def keep(self, kept: Sequence[Kept]) -> set[str]:
        """Take or keep duties, each at the record that we know; answer those that are ours."""
        ...

    async def forget(self, nodes: Collection[NodeId]) -> None:
        """Remove nodes whose tasks were resumed."""
        ...

    async def leave(self) -> None:
        """Give up the lease and every partition at once, so that others need not wait."""
        ...


def preferred(queue: str, partitions: int, nodes: Collection[NodeId]) -> dict[int, NodeId]:
    """Who should own which partition: every node computes the same, and a change moves few.

    Rendezvous hashing with a bound: the strongest of all pairs comes first, and a node that has
    its even part gets no more.  Without the bound, one of three nodes on eight partitions would
    have nothing to do in one case of nine.
    """
    assert nodes, "partitions are shared among live nodes"
    return dict(_preferred(queue, partitions, frozenset(nodes)))


@lru_cache(maxsize=64)
def _preferred(queue: str, partitions: int, nodes: frozenset[NodeId]) -> dict[int, NodeId]:
    even, larger = divmod(partitions, len(nodes))  # so many nodes have one more
    counts = dict.fromkeys(nodes, 0)
    pairs = [(_weight(queue, n, node), node, n) for n in range(partitions) for node in nodes]
    owners: dict[int, NodeId] = {}
    for _, node, number in sorted(pairs, reverse=True):
        if number in owners or counts[node] > even or (counts[node] == even and not larger):
            continue
        if counts[node] == even:
            larger -= 1
        owners[number] = node
        counts[node] += 1
    return owners


def _weight(queue: str, partition: int, node: NodeId) -> bytes:
    return hashlib.blake2b(f"{queue}\0{partition}\0{node}".encode(), digest_size=8).digest()
