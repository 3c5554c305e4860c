"""SAQ on Redis."""

from __future__ import annotations

from typing import Any

from saq import Queue

import side

queue = Queue.from_url(side.URL)


async def noop(ctx: Any, *, text: str) -> None:
    side.ran(text)


settings = {"queue": queue, "functions": [noop], "concurrency": side.SLOTS}


def setup() -> None:
    """A broker needs nothing."""


async def opened() -> None:
    await queue.connect()


async def one(text: str) -> None:
    await queue.enqueue("noop", text=text)


async def closed() -> None:
    await queue.disconnect()


def work() -> None:
    side.become("saq", "saq_peer.settings")


PEER = side.Peer(
    packages=["saq", "redis"],
    setup=setup,
    opened=opened,
    one=one,
    closed=closed,
    work=work,
)
