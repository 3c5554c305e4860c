"""The role of `Backlogs`: what a partition's owner reads and writes."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping, Sequence

from holdfast.ids import NodeId
from holdfast.store import Arrivals, Cursor, Entry, LevelCursor, Loaded, Record
from holdfast.stores.sqlite import lines
from holdfast.stores.sqlite.threads import Threads


class BacklogsRole(Threads):
    async def claim(self, queue: str, wanted: Mapping[int, int], *, node: NodeId) -> dict[int, int]:
        """See `holdfast.store.Backlogs`.

        The leases are read first and acted upon afterwards; an owner that renews in between is
        fenced by the epoch all the same.
        """
        is_alive = await self._ask_leases(lambda leases, now: leases.is_alive(now))
        wanted = dict(wanted)

        def work(db: sqlite3.Connection, now: int) -> dict[int, int]:
            lines.make_partitions(db, queue, self.partitions)
            return lines.claim(db, queue, wanted, node=node, is_alive=is_alive)

        taken: dict[int, int] = await self._write(work)
        return taken

    async def load(self, queue: str, partitions: Collection[int]) -> list[Loaded]:
        loaded: list[Loaded] = await self._read(
            lambda db, now: lines.load(db, queue, sorted(partitions))
        )
        return loaded

    async def arrivals(
        self, queue: str, cursors: Sequence[Cursor], *, limit: int, exact: bool
    ) -> Arrivals:
        """See `holdfast.store.Backlogs`.  With one writer, every read is exact."""
        found: Arrivals = await self._read(
            lambda db, now: lines.arrivals(db, queue, cursors, limit)
        )
        return found

    async def record(self, queue: str, records: Sequence[Record]) -> set[int]:
        refused: set[int] = await self._write(lambda db, now: lines.record(db, queue, records))
        return refused

    async def levels(self, queue: str, cursors: Sequence[LevelCursor]) -> list[list[Entry]]:
        found: list[list[Entry]] = await self._read(
            lambda db, now: lines.levels(db, queue, cursors)
        )
        return found

    async def count_levels(self, queue: str, cursors: Sequence[LevelCursor]) -> list[int]:
        counted: list[int] = await self._read(
            lambda db, now: lines.count_levels(db, queue, cursors)
        )
        return counted
