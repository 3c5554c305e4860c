"""Nodes that write a log in turns, on the real stores."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from holdfast.address import Address
from holdfast.clock import SystemClock
from holdfast.duties.sequencer import Sequencer
from holdfast.ids import NodeId
from holdfast.node.compose import make_store
from holdfast.ring import in_order
from holdfast.telemetry.events import Events

NODES = in_order([NodeId(f"node-{letter}") for letter in "abc"])


@pytest.mark.req("RING-24", "RING-42")
async def test_the_log_has_no_gap_though_its_writers_come_and_go(store_url):
    stores = [make_store(Address(url=store_url), clock=SystemClock(), rng=Random(0)) for _ in NODES]
    await stores[0].migrate()
    for store in stores:
        await store.open()
    alive = set(NODES)

    async def wanted(latest):
        return b"news"

    def start(node: NodeId, store) -> asyncio.Task[None]:
        sequencer = Sequencer(
            "cuts",
            node,
            log=store,
            alive=lambda: alive,
            wanted=wanted,
            clock=SystemClock(),
            events=Events(),
            tick_s=1 / 16,
            spacing=1,
        )
        return asyncio.create_task(sequencer.keep())

    async def written(more: int) -> None:
        before = (await stores[0].ring_latest("cuts")).number
        async with asyncio.timeout(30):
            while (await stores[0].ring_latest("cuts")).number < before + more:
                await asyncio.sleep(0.02)

    loops = {node: start(node, store) for node, store in zip(NODES, stores, strict=True)}
    try:
        await written(8)
        for _ in range(2):
            first = (await stores[0].ring_latest("cuts")).writer
            loops.pop(first).cancel()
            await written(8)
            assert (await stores[0].ring_latest("cuts")).writer != first
    finally:
        for loop in loops.values():
            loop.cancel()
        await asyncio.gather(*loops.values(), return_exceptions=True)
        records = await stores[0].ring_records("cuts", after=0, limit=1000)
        for store in stores:
            await store.close()

    assert [record.number for record in records] == list(range(1, len(records) + 1))
    assert len({record.writer for record in records}) == 3
