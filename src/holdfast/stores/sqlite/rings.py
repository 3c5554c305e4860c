"""The role of `Rings`: logs that nodes write in turns."""

from __future__ import annotations

import sqlite3

from holdfast.ring import NOTHING, RingRecord
from holdfast.stores.sqlite.statements import run
from holdfast.stores.sqlite.threads import Threads


class RingsRole(Threads):
    async def ring_latest(self, ring: str) -> RingRecord:
        found: RingRecord = await self._read(lambda db, now: _latest(db, ring))
        return found

    async def ring_append(self, ring: str, record: RingRecord) -> bool:
        params = {"ring": ring, **record._asdict()}

        def work(db: sqlite3.Connection, now: int) -> bool:
            # The writer's transaction began before the look, so nobody writes in between.
            if _latest(db, ring).number != record.number - 1:
                return False
            run(db, "ring_put", **params)
            run(db, "ring_record_put", **params)
            return True

        is_written: bool = await self._write(work)
        return is_written

    async def ring_records(self, ring: str, *, after: int, limit: int) -> list[RingRecord]:
        rows = await self._read(
            lambda db, now: run(db, "ring_records", ring=ring, after=after, limit=limit)
        )
        return [RingRecord._make(row) for row in rows]

    async def ring_rotate(self, ring: str, *, kept: int) -> None:
        await self._write(lambda db, now: run(db, "ring_rotate", ring=ring, kept=kept))


def _latest(db: sqlite3.Connection, ring: str) -> RingRecord:
    rows = run(db, "ring_latest", ring=ring)
    return RingRecord._make(rows[0]) if rows else NOTHING
