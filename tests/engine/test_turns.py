"""Kinds with turns of their own, through a real node."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest


async def test_a_kind_with_three_turns_gets_three_of_four_slots_that_are_freed(app):
    order: list[str] = []
    door = asyncio.Event()

    @app.task(turns=3)
    async def often() -> None:
        await door.wait()
        order.append("often")

    @app.task
    async def once() -> None:
        await door.wait()
        order.append("once")

    await once.enqueue_many([()] * 400)
    await often.enqueue_many([()] * 800)
    async with app.node(slots_async=4) as node:
        async with asyncio.timeout(8):
            while node.looked_ahead < 1_196 or not (await node.backlog("default")).is_exact:
                await asyncio.sleep(0.02)
        door.set()
        await node.drained(8)

    served = Counter(order[4:804])  # the first four came before the others were read
    assert served["often"] / served["once"] == pytest.approx(3, rel=0.05)
    assert Counter(order) == {"often": 800, "once": 400}
