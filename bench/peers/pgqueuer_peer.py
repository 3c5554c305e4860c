"""pgqueuer, on asyncpg, its worker in this process; QUEUE_BATCH changes its batch size."""

from __future__ import annotations

import os

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

import side


async def connected() -> asyncpg.Connection:
    return await asyncpg.connect(side.URL)


async def setup() -> None:
    queries = Queries(AsyncpgDriver(await connected()))
    await queries.install()
    await queries.optimize_autovacuum()


async def opened() -> None:
    global queries
    queries = Queries(AsyncpgDriver(await connected()))


async def one(text: str) -> None:
    await queries.enqueue("noop", text.encode())


async def many(texts: list[str]) -> None:
    count = len(texts)
    await queries.enqueue(["noop"] * count, [text.encode() for text in texts], [0] * count)


async def work() -> None:
    worker = PgQueuer(AsyncpgDriver(await connected()))

    @worker.entrypoint("noop")
    async def noop(job: Job) -> None:
        assert job.payload is not None
        side.ran(job.payload.decode())

    batch = os.environ.get("QUEUE_BATCH")
    await worker.run(**{"batch_size": int(batch)} if batch else {})


PEER = side.Peer(
    packages=["pgqueuer", "asyncpg"],
    setup=setup,
    opened=opened,
    one=one,
    many=many,
    work=work,
)
