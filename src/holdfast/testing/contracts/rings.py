"""Logs that nodes write in turns."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from holdfast.ids import NodeId
from holdfast.ring import NOTHING, RingRecord, Turn
from holdfast.store import Store
from holdfast.testing.contracts.builders import NODE, OTHER

RING = "cuts"


async def written(store: Store, *numbers: int, ring: str = RING) -> list[bool]:
    return [await store.ring_append(ring, RingRecord(number, NODE)) for number in numbers]


class RingsContract:
    @pytest.mark.req("RING-12")
    async def test_the_latest_record_has_its_writer_number_and_body(self, store: Store) -> None:
        assert await store.ring_latest(RING) == NOTHING
        record = RingRecord(1, NODE, b"\x00 anything")

        assert await store.ring_append(RING, record)

        assert await store.ring_latest(RING) == record
        assert await store.ring_records(RING, after=0, limit=10) == [record]
        assert await store.ring_latest("another") == NOTHING

    @pytest.mark.req("RING-25", "RING-27")
    async def test_only_the_record_that_follows_the_latest_is_written(self, store: Store) -> None:
        assert await written(store, 2, 0, 1, 1, 3, 2) == [False, False, True, False, False, True]

        assert not await store.ring_append(RING, RingRecord(2, OTHER, b"late"))
        assert await store.ring_latest(RING) == RingRecord(2, NODE)
        assert await store.ring_records(RING, after=0, limit=10) == [
            RingRecord(1, NODE),
            RingRecord(2, NODE),
        ]

    @pytest.mark.req("RING-14", "RING-29")
    @pytest.mark.parametrize("kept", [10, 100, 1_000])
    async def test_rotation_keeps_the_last_records_and_no_number_comes_back(
        self, store: Store, kept: int
    ) -> None:
        last = kept + 5
        assert all(await written(store, *range(1, last + 1)))

        await store.ring_rotate(RING, kept=kept)

        records = await store.ring_records(RING, after=0, limit=10_000)
        assert [record.number for record in records] == list(range(6, last + 1))
        assert not any(await written(store, 1, 5, 6, last))
        assert await written(store, last + 1) == [True]
        page = await store.ring_records(RING, after=last - 2, limit=2)
        assert [record.number for record in page] == [last - 1, last]

    @pytest.mark.req("RING-23", "RING-24")
    async def test_of_five_who_write_at_once_one_wins_each_number(self, store: Store) -> None:
        nodes = [NodeId(f"node-{number}") for number in range(5)]

        async def writer(node: NodeId) -> list[RingRecord]:
            turn, rng, won = Turn(node), Random(node), []
            while turn.latest.number < 40:
                turn.read(await store.ring_latest(RING), 0)
                record = turn.following(node.encode())
                if await store.ring_append(RING, record):
                    won.append(record)
                await asyncio.sleep(rng.random() * 0.002)
            return won

        won = [record for line in await asyncio.gather(*map(writer, nodes)) for record in line]

        numbers = sorted(record.number for record in won)
        assert numbers == list(range(1, len(numbers) + 1)), "none twice, none skipped"
        assert await store.ring_records(RING, after=0, limit=100) == sorted(won)
