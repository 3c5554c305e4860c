"""The model's rings: the rules of the log themselves."""

from __future__ import annotations

from collections import defaultdict

from holdfast.ring import RingLog, RingRecord


class ModelRings:
    def __init__(self) -> None:
        self._rings: defaultdict[str, RingLog] = defaultdict(RingLog)

    async def ring_latest(self, ring: str) -> RingRecord:
        return self._rings[ring].latest

    async def ring_append(self, ring: str, record: RingRecord) -> bool:
        return self._rings[ring].append(record)

    async def ring_records(self, ring: str, *, after: int, limit: int) -> list[RingRecord]:
        return self._rings[ring].records(after)[:limit]

    async def ring_rotate(self, ring: str, *, kept: int) -> None:
        self._rings[ring].rotate(kept)
