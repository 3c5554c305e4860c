"""Logs that nodes write in turns."""

from __future__ import annotations

from holdfast.ring import NOTHING, RingRecord
from holdfast.stores.postgres.connection import Database


class PostgresRings:
    """`holdfast.store.Rings`: the promises are written there."""

    _database: Database

    async def ring_latest(self, ring: str) -> RingRecord:
        rows = await self._database.read("ring_latest", {"ring": ring})
        return RingRecord._make(rows[0]) if rows else NOTHING

    async def ring_append(self, ring: str, record: RingRecord) -> bool:
        params = {"ring": ring, **record._asdict()}
        return bool(await self._database.write("ring_append", params, repeat_is_safe=False))

    async def ring_records(self, ring: str, *, after: int, limit: int) -> list[RingRecord]:
        params = {"ring": ring, "after": after, "limit": limit}
        return [RingRecord._make(row) for row in await self._database.read("ring_records", params)]

    async def ring_rotate(self, ring: str, *, kept: int) -> None:
        await self._database.write("ring_rotate", {"ring": ring, "kept": kept})
