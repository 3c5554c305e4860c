"""chancy, with its asyncio executor."""

from __future__ import annotations

import logging

from chancy import Chancy, Queue, Worker, job

import side

app = Chancy(side.URL, log=logging.getLogger("chancy"))


@job()
async def noop(*, text: str) -> None:
    side.ran(text)


async def setup() -> None:
    async with app:
        await app.migrate()
        executor = "chancy.executors.asyncex.AsyncExecutor"
        await app.declare(
            Queue("default", concurrency=side.SLOTS, executor=executor, eager_polling=True)
        )


async def opened() -> None:
    await app.pool.open()


async def one(text: str) -> None:
    await app.push(noop.job.with_kwargs(text=text))


async def many(texts: list[str]) -> None:
    async for _ in app.push_many([noop.job.with_kwargs(text=text) for text in texts]):
        pass


async def closed() -> None:
    await app.pool.close()


async def work() -> None:
    async with app, Worker(app) as worker:
        await worker.wait_for_shutdown()


PEER = side.Peer(
    packages=["chancy", "psycopg"],
    setup=setup,
    opened=opened,
    one=one,
    many=many,
    closed=closed,
    work=work,
)
