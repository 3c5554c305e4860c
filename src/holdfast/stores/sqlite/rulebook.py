"""The role of `Rulebook`: what people set while nodes run, and the shares that nodes have of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict

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
    limit_of,
    refilled,
    shared,
)
from holdfast.store import NO_WEIGHTS, Member
from holdfast.stores.sqlite.rows import SECOND
from holdfast.stores.sqlite.statements import as_list, run
from holdfast.stores.sqlite.threads import Threads


class RulebookRole(Threads):
    _rules_seen: tuple[tuple[int, int], int] | None

    async def rules_version(self) -> int:
        """See `holdfast.store.Rulebook`.  While the file is the same, nothing is read again."""
        version = (self.data_version(), self._writer.commits)
        if self._rules_seen is None or self._rules_seen[0] != version:
            rows = await self._read(lambda db, now: run(db, "meta", name="rules"))
            self._rules_seen = version, int(rows[0][0])
        return self._rules_seen[1]

    async def rules(self, queue: str) -> Rules:
        found: Rules = await self._read(lambda db, now: _rules(db, queue))
        return found

    async def change_rules(
        self,
        queue: str,
        *,
        limits: Sequence[Limit] = (),
        dropped: Collection[str] = (),
        weights: Mapping[str, float | None] = NO_WEIGHTS,
        fairness: Mode | None = None,
    ) -> int:
        limits, dropped, weights = list(limits), list(dropped), dict(weights)

        def work(db: sqlite3.Connection, now: int) -> int:
            for name in dropped:
                for table in ("limit_drop", "shares_drop", "buckets_drop"):
                    run(db, table, queue=queue, name=name)
            for limit in limits:
                run(db, "limit_put", **asdict(limit))
            for key in [key for key, weight in weights.items() if weight is None]:
                run(db, "weight_drop", queue=queue, key=key)
            known = dict(run(db, "weights", queue=queue))
            for key, weight in checked_weights(queue, known, weights).items():
                run(db, "weight_put", queue=queue, key=key, weight=weight)
            if fairness is not None:
                run(db, "fairness_put", queue=queue, mode=fairness)
            run(db, "rules_raise")
            return int(run(db, "meta", name="rules")[0][0])

        version: int = await self._write(work)
        return version

    async def allot(self, queue: str, wants: Sequence[Want], *, node: NodeId) -> list[Share]:
        wants = list(wants)
        if not wants:
            return []

        def work(db: sqlite3.Connection, now: int) -> list[Share]:
            limits = {limit.name: limit for limit in _rules(db, queue).limits}
            return [_allotted(db, limits.get(want.limit), want, node, now) for want in wants]

        shares: list[Share] = await self._write(work)
        lacking = [want for want, got in zip(wants, shares, strict=True) if got.held < want.wanted]
        if lacking:
            await self._give_back(queue, lacking, node)
        return shares

    async def _give_back(self, queue: str, wants: Sequence[Want], node: NodeId) -> None:
        """What the dead hold comes back, also when whoever resumed their tasks died as well."""

        def holders(db: sqlite3.Connection, now: int) -> set[str]:
            places = ({"queue": queue, "name": want.limit, "key": want.key} for want in wants)
            return {holder for place in places for _, holder, *_ in run(db, "shares", **place)}

        others = await self._read(holders) - {node}
        if not others:
            return
        alive = {member.node for member in await self.members() if member.is_alive}
        if gone := sorted(others - alive):
            await self._write(lambda db, now: run(db, "shares_give_back", nodes=as_list(gone)))

    async def members(self) -> list[Member]:
        raise NotImplementedError


def _rules(db: sqlite3.Connection, queue: str) -> Rules:
    limits = [limit_of(row) for row in run(db, "limits", queue=queue)]
    weights = dict(run(db, "weights", queue=queue))
    modes = run(db, "fairness", queue=queue)
    mode: Mode = modes[0][0] if modes else "count"
    return Rules(run(db, "meta", name="rules")[0][0], limits, weights, mode)


def _allotted(
    db: sqlite3.Connection, limit: Limit | None, want: Want, node: NodeId, now: int
) -> Share:
    if limit is None:
        return Share(0, 0, 0)
    place = {"queue": limit.queue, "name": limit.name, "key": want.key}
    if limit.rate is not None:
        rows = run(db, "bucket", **place)
        tokens, at = rows[0] if rows else (None, now)
        left, share = refilled(limit, want, tokens, (now - at) / SECOND)
        run(db, "bucket_put", **place, tokens=left, at=now)
        return share
    others: list[Holder] = []
    own = 0
    counted = {"queue": limit.queue, "kind": limit.kind, "key": counted_key(limit, want.key)}
    for _, holder, held, wanted, ended in run(db, "shares", **place):
        if holder != node:
            others.append(Holder(holder, held, wanted, bool(ended)))
            continue
        own = held
        if ended:  # taken for dead, and back: a new share, of what is still PROCESSING
            run(db, "share_drop", **place, node=node)
            running = run(db, "running_under", node=node, **counted)[0][0]
            own = max(want.used, running)
            want = want._replace(used=own)
    if want.used > own:
        # More than it was given, such as attempts that others have superseded since.
        running = run(db, "running_under", node=node, **counted)[0][0]
        want = want._replace(used=max(own, min(want.used, running)))
    share = shared(limit.concurrency or 0, others, node, want, now / SECOND)
    if not share.held and not want.wanted:
        run(db, "share_drop", **place, node=node)
        return share
    row = run(db, "share_put", **place, node=node, held=share.held, wanted=want.wanted)
    return share._replace(number=row[0][0])
