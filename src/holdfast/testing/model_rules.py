"""The model's rulebook: limits, weights and shares in their simplest true form."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from itertools import count
from typing import TYPE_CHECKING

from holdfast.clock import Clock
from holdfast.ids import NodeId
from holdfast.limit import (
    Holder,
    Limit,
    Mode,
    Rules,
    Share,
    Want,
    checked_weights,
    counted_key,
    refilled,
    shared,
)
from holdfast.store import NO_WEIGHTS, Running

Place = tuple[str, str, str]  # queue, limit, key


class ModelRules:
    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._rules_version = 0
        self._limits: dict[tuple[str, str], Limit] = {}
        self._key_weights: dict[str, dict[str, float]] = {}
        self._shares: dict[Place, dict[NodeId, tuple[int, Holder]]] = {}  # with their numbers
        self._modes: dict[str, Mode] = {}
        self._numbers = count(1)
        self._buckets: dict[Place, tuple[float, datetime]] = {}

    def _running(self) -> list[tuple[str, Running]]:
        raise NotImplementedError

    if TYPE_CHECKING:

        def _is_alive(self, node: NodeId) -> bool: ...

    async def rules_version(self) -> int:
        return self._rules_version

    async def rules(self, queue: str) -> Rules:
        limits = [limit for _, limit in sorted(self._limits.items()) if limit.queue == queue]
        weights = dict(self._key_weights.get(queue, {}))
        return Rules(self._rules_version, limits, weights, self._modes.get(queue, "count"))

    async def change_rules(
        self,
        queue: str,
        *,
        limits: Sequence[Limit] = (),
        dropped: Collection[str] = (),
        weights: Mapping[str, float | None] = NO_WEIGHTS,
        fairness: Mode | None = None,
    ) -> int:
        known = self._key_weights.get(queue, {})
        kept = checked_weights(queue, known, weights)
        self._key_weights[queue] = {
            key: weight for key, weight in known.items() if key not in weights
        } | kept
        for name in dropped:
            self._limits.pop((queue, name), None)
            for place in [place for place in self._shares if place[:2] == (queue, name)]:
                del self._shares[place]
            for place in [place for place in self._buckets if place[:2] == (queue, name)]:
                del self._buckets[place]
        for limit in limits:
            self._limits[limit.queue, limit.name] = limit
        if fairness is not None:
            self._modes[queue] = fairness
        self._rules_version += 1
        return self._rules_version

    async def allot(self, queue: str, wants: Sequence[Want], *, node: NodeId) -> list[Share]:
        return [self._allotted(queue, want, node) for want in wants]

    def _allotted(self, queue: str, want: Want, node: NodeId) -> Share:
        limit = self._limits.get((queue, want.limit))
        place = (queue, want.limit, want.key)
        now = self._clock.now()
        if limit is None:
            return Share(0, 0, 0)
        if limit.rate is not None:
            tokens, at = self._buckets.get(place, (None, now))
            left, share = refilled(limit, want, tokens, (now - at).total_seconds())
            self._buckets[place] = (left, now)
            return share
        rows = self._shares.setdefault(place, {})
        if node in rows and rows[node][1].has_ended:
            del rows[node]
            want = want._replace(used=max(want.used, self._count(limit, want.key, node)))
        elif want.used > (held := rows[node][1].held if node in rows else 0):
            # More than it was given, such as attempts that others have superseded since.
            counted = min(want.used, self._count(limit, want.key, node))
            want = want._replace(used=max(held, counted))
        others = [holder for _, holder in rows.values() if holder.node != node]
        share = shared(limit.concurrency or 0, others, node, want, now.timestamp())
        if share.held < want.wanted:
            # What the dead hold comes back, also when whoever resumed their tasks died as well.
            self._give_back_shares([one.node for one in others if not self._is_alive(one.node)])
        if not share.held and not want.wanted:
            rows.pop(node, None)
            return share
        number = rows[node][0] if node in rows else next(self._numbers)
        rows[node] = (number, Holder(node, share.held, want.wanted))
        return share._replace(number=number)

    def _count(self, limit: Limit, key: str, node: NodeId) -> int:
        counted = counted_key(limit, key)
        return sum(
            queue == limit.queue
            and row.node == node
            and limit.kind in (None, row.kind)
            and counted in (None, row.fairness_key)
            for queue, row in self._running()
        )

    def _holds_shares(self, numbers: Collection[int], node: NodeId) -> bool:
        held = {n for rows in self._shares.values() for n, h in rows.values() if _is_held(h, node)}
        return set(numbers) <= held

    def _end_shares(self, nodes: Collection[NodeId]) -> None:
        for rows in self._shares.values():
            for node in rows.keys() & set(nodes):
                number, holder = rows[node]
                rows[node] = (number, holder._replace(has_ended=True))

    def _give_back_shares(self, nodes: Collection[NodeId]) -> None:
        """Those of nodes that run nothing any more."""
        gone = set(nodes) - {row.node for _, row in self._running()}
        for rows in self._shares.values():
            for node in rows.keys() & gone:
                del rows[node]


def _is_held(holder: Holder, node: NodeId) -> bool:
    return holder.node == node and not holder.has_ended
