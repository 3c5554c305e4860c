"""procrastinate, on its asynchronous psycopg connector."""

from __future__ import annotations

from procrastinate import App, PsycopgConnector

import side

app = App(connector=PsycopgConnector(conninfo=side.URL, min_size=4, max_size=20))


@app.task(name="noop")
async def noop(text: str) -> None:
    side.ran(text)


async def setup() -> None:
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


async def opened() -> None:
    await app.open_async()


async def one(text: str) -> None:
    await noop.defer_async(text=text)


async def many(texts: list[str]) -> None:
    await noop.batch_defer_async(*({"text": text} for text in texts))


async def work() -> None:
    async with app.open_async():
        await app.run_worker_async(concurrency=side.SLOTS, wait=True)


PEER = side.Peer(
    packages=["procrastinate", "psycopg"],
    setup=setup,
    opened=opened,
    one=one,
    many=many,
    closed=app.close_async,
    work=work,
)
