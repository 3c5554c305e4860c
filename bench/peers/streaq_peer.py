"""streaq on Redis."""

from __future__ import annotations

from streaq import Worker

import side

worker = Worker(redis_url=side.URL, concurrency=side.SLOTS)


@worker.task
async def noop(text: str) -> None:
    side.ran(text)


def setup() -> None:
    """A broker needs nothing."""


async def opened() -> None:
    await worker.__aenter__()


async def one(text: str) -> None:
    await noop.enqueue(text)


async def many(texts: list[str]) -> None:
    await worker.enqueue_many([noop.enqueue(text) for text in texts])


async def closed() -> None:
    await worker.__aexit__(None, None, None)


def work() -> None:
    side.become("streaq", "run", "streaq_peer:worker")


PEER = side.Peer(
    packages=["streaq", "coredis"],
    setup=setup,
    opened=opened,
    one=one,
    many=many,
    closed=closed,
    work=work,
)
