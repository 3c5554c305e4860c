"""What people set while nodes run, and the shares that nodes have of it."""

from __future__ import annotations

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
from holdfast.store import NO_WEIGHTS
from holdfast.stores.postgres.connection import Database, Session

Place = tuple[str, str]  # a limit's name, and a key


class PostgresRulebook:
    """`holdfast.store.Rulebook`: the promises are written there."""

    _database: Database

    async def rules_version(self) -> int:
        return int((await self._database.read("rules_version", {}))[0][0])

    async def rules(self, queue: str) -> Rules:
        # The version first: what is changed meanwhile has a higher one, and is read again.
        version = await self.rules_version()
        limits = await self._database.read("limits", {"queue": queue})
        weights = await self._database.read("weights", {"queue": queue})
        modes = await self._database.read("fairness", {"queue": queue})
        mode: Mode = modes[0][0] if modes else "count"
        return Rules(version, [limit_of(row) for row in limits], dict(map(tuple, weights)), mode)

    async def change_rules(
        self,
        queue: str,
        *,
        limits: Sequence[Limit] = (),
        dropped: Collection[str] = (),
        weights: Mapping[str, float | None] = NO_WEIGHTS,
        fairness: Mode | None = None,
    ) -> int:
        async def work(session: Session) -> int:
            version = (await session.run("raise_rules", {}))[0][0]
            if dropped:
                await session.run("drop_limits", {"queue": queue, "names": sorted(dropped)})
            for limit in sorted(limits, key=lambda limit: limit.name):
                await session.run("put_limit", asdict(limit))
            if weights:
                known = dict(map(tuple, await session.run("weights", {"queue": queue})))
                kept = checked_weights(queue, known, weights)
                gone = [key for key, weight in weights.items() if weight is None]
                await session.run("drop_weights", {"queue": queue, "keys": gone})
                arrays = {"keys": list(kept), "weights": list(kept.values())}
                await session.run("put_weights", {"queue": queue, **arrays})
            if fairness is not None:
                await session.run("put_fairness", {"queue": queue, "mode": fairness})
            return int(version)

        return await self._database.together(work)

    async def allot(self, queue: str, wants: Sequence[Want], *, node: NodeId) -> list[Share]:
        if not wants:
            return []
        return await self._database.together(lambda session: _allot(session, queue, wants, node))


async def _allot(session: Session, queue: str, wants: Sequence[Want], node: NodeId) -> list[Share]:
    names = sorted({want.limit for want in wants})
    rows = await session.run("lock_limits", {"queue": queue, "names": names})
    limits = {limit.name: limit for limit in map(limit_of, rows)}
    slots = [w for w in wants if w.limit in limits and limits[w.limit].rate is None]
    tokens = [w for w in wants if w.limit in limits and limits[w.limit].rate is not None]
    found = await _slots(session, queue, limits, slots, node)
    found |= await _tokens(session, queue, limits, tokens)
    return [found.get((want.limit, want.key), Share(0, 0, 0)) for want in wants]


async def _slots(
    session: Session, queue: str, limits: Mapping[str, Limit], wants: Sequence[Want], node: NodeId
) -> dict[Place, Share]:
    if not wants:
        return {}
    where = _where(queue, wants)
    others: dict[Place, list[Holder]] = {}
    used: dict[Place, int] = {}
    own: dict[Place, int] = {}
    for name, key, holder, held, wanted, ended in await session.run("holders", where):
        if holder != node:
            others.setdefault((name, key), []).append(Holder(holder, held, wanted, ended))
            continue
        own[name, key] = held
        if ended:
            used[name, key] = await _returned(session, limits[name], key, node)
    wants = [
        await _believed(session, limits[want.limit], want, own.get((want.limit, want.key), 0), node)
        for want in wants
    ]
    now_s = (await session.run("clock", {}))[0][0]
    shares = {
        (want.limit, want.key): shared(
            limits[want.limit].concurrency or 0,
            others.get((want.limit, want.key), []),
            node,
            want._replace(used=max(want.used, used.get((want.limit, want.key), 0))),
            now_s,
        )
        for want in wants
    }
    params = where | {
        "node": node,
        "helds": [shares[want.limit, want.key].held for want in wants],
        "wanteds": [want.wanted for want in wants],
    }
    lacking = [want for want in wants if shares[want.limit, want.key].held < want.wanted]
    unmet = {o.node for want in lacking for o in others.get((want.limit, want.key), ())}
    if unmet:  # what the dead hold comes back, also when whoever resumed their tasks died as well
        await session.run("drop_shares", {"nodes": sorted(unmet)})
    for name, key, number in await session.run("put_shares", params):
        shares[name, key] = shares[name, key]._replace(number=number)
    return shares


async def _returned(session: Session, limit: Limit, key: str, node: NodeId) -> int:
    """The node was taken for dead and is back: a new share, of what is still PROCESSING."""
    await session.run(
        "drop_share", {"queue": limit.queue, "name": limit.name, "key": key, "node": node}
    )
    return await _running_under(session, limit, key, node)


async def _believed(session: Session, limit: Limit, want: Want, own: int, node: NodeId) -> Want:
    """What it uses beyond its share counts only if it runs in its name.

    Such as what ran before there was a limit; not attempts that others have superseded since.
    """
    if want.used <= own:
        return want
    running = await _running_under(session, limit, want.key, node)
    return want._replace(used=max(own, min(want.used, running)))


async def _running_under(session: Session, limit: Limit, key: str, node: NodeId) -> int:
    counted = {"kind": limit.kind, "key": counted_key(limit, key)}
    rows = await session.run("running_under", {"queue": limit.queue, "node": node, **counted})
    return int(rows[0][0])


async def _tokens(
    session: Session, queue: str, limits: Mapping[str, Limit], wants: Sequence[Want]
) -> dict[Place, Share]:
    if not wants:
        return {}
    where = _where(queue, wants)
    found: dict[Place, Share] = {}
    left: list[float] = []
    rows = {(name, key): rest for name, key, *rest in await session.run("buckets", where)}
    for want in wants:
        tokens, since_s = rows[want.limit, want.key]
        limit = limits[want.limit]
        rest, share = refilled(limit, want, tokens, since_s)
        found[want.limit, want.key] = share
        left.append(rest)
    await session.run("put_buckets", where | {"tokens": left})
    return found


def _where(queue: str, wants: Sequence[Want]) -> dict[str, object]:
    return {
        "queue": queue,
        "names": [want.limit for want in wants],
        "keys": [want.key for want in wants],
    }
