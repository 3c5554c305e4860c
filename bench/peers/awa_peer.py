"""awa, the Python package of a Rust core."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from awa import AsyncClient

import side


@dataclass
class Noop:
    text: str


async def setup() -> None:
    """A new installation takes its queue storage into use when its first worker starts."""
    client = AsyncClient(side.URL)
    await client.migrate()
    await started(client)
    await asyncio.sleep(1)
    await client.shutdown()
    await client.close()


async def started(client: AsyncClient) -> None:
    @client.task(Noop, queue="bench")
    async def noop(job: Any) -> None:
        side.ran(job.args.text)

    await client.start([("bench", side.SLOTS)])


async def opened() -> None:
    global client
    client = AsyncClient(side.URL)


async def one(text: str) -> None:
    await client.insert(Noop(text), queue="bench")


async def many(texts: list[str]) -> None:
    await client.enqueue_many_copy([Noop(text) for text in texts], queue="bench")


async def closed() -> None:
    await client.close()


async def work() -> None:
    worker = AsyncClient(side.URL)
    await started(worker)
    await asyncio.Event().wait()


PEER = side.Peer(
    packages=["awa-pg"],
    setup=setup,
    opened=opened,
    one=one,
    many=many,
    closed=closed,
    work=work,
)
