"""Holdfast, on the store of QUEUE_URL, as `holdfast worker` runs it by default."""

from __future__ import annotations

import side
from holdfast import Holdfast

app = Holdfast(side.URL)


@app.task
async def noop(text: str) -> None:
    side.ran(text)


def setup() -> None:
    side.become("holdfast", "db", "migrate", HOLDFAST_URL=side.URL)


async def opened() -> None:
    await app.store()


async def one(text: str) -> None:
    await noop.enqueue(text)


async def many(texts: list[str]) -> None:
    await noop.enqueue_many([(text,) for text in texts])


def work() -> None:
    side.become("holdfast", "worker", "holdfast_peer:app")


PEER = side.Peer(
    packages=["holdfast"],
    setup=setup,
    opened=opened,
    one=one,
    many=many,
    closed=app.close,
    work=work,
)
