"""A producer in a process of its own: `python -m holdfast.bench.child`.

The first line of its input says what to do, as JSON: an address may hold a password, which has
no business among the arguments of a process.  Its last line of output is the answer.  It ends
by itself when its input ends, so it never outlives the benchmark.

    fill      enqueue so many tasks in bulk
    knock     enqueue one task after the other at a steady rate, and say when each was committed
    produce   enqueue one batch for each further line of input
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from holdfast.bench.ground import Place
from holdfast.bench.knocking import Knocker
from holdfast.bench.load import TEXT, Load
from holdfast.errors import StoreUnavailable

FLIGHTS = 4  # batches that a producer has under way at once
READY = "ready"
Verb = Callable[..., Awaitable[Any]]
ANSWER_BYTES_MAX = 64 * 1024 * 1024


class Child:
    """The other end: what the benchmark holds of its producer."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    def go_on(self, lines: int = 1) -> None:
        """Ask for so many more batches."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n" * lines)

    async def answered(self) -> Any:
        """Say that there is no more to do, and wait for the answer."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        line = await self._process.stdout.readline()
        code = await self._process.wait()
        if code or not line:
            raise StoreUnavailable(f"the producer ended with code {code} and no answer")
        return json.loads(line)


@asynccontextmanager
async def started(place: Place, verb: str, **words: Any) -> AsyncIterator[Child]:
    """A child that is connected and ready; it is ended with the block, whatever happens."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "holdfast.bench.child",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=ANSWER_BYTES_MAX,
    )
    try:
        assert process.stdin is not None and process.stdout is not None
        asked = {"url": place.url, "schema": place.schema, "verb": verb, "words": words}
        process.stdin.write(json.dumps(asked).encode() + b"\n")
        if (await process.stdout.readline()).decode().strip() != READY:
            raise StoreUnavailable(f"the producer ended with code {await process.wait()}")
        yield Child(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def main() -> None:
    """What the child does."""
    lines = await _input()
    asked = json.loads(await lines.readline())
    place = Place(asked["url"], asked["schema"])
    verbs: dict[str, Verb] = {"fill": _fill, "knock": _knock, "produce": _produce}
    answer = await verbs[asked["verb"]](place, lines, **asked["words"])
    _say(json.dumps(answer))


async def _fill(
    place: Place, lines: asyncio.StreamReader, count: int, delay_s: float | None = None
) -> int:
    async with (load := Load(place)).app:
        _say(READY)
        await load.fill(count, delay_s)
    return count


async def _knock(
    place: Place, lines: asyncio.StreamReader, count: int, per_second: float
) -> dict[int, float]:
    async with (knocker := Knocker(place)).app:
        await knocker.app.store()
        _say(READY)
        return await knocker.knock(count, per_second)


async def _produce(place: Place, lines: asyncio.StreamReader, batch: int) -> int:
    enqueued = 0
    asked: asyncio.Queue[bool] = asyncio.Queue()

    async def keep_producing(load: Load) -> None:
        nonlocal enqueued
        while await asked.get():
            await load.noop.enqueue_many([(TEXT,)] * batch)
            enqueued += batch

    async with (load := Load(place)).app:
        await load.app.store()
        _say(READY)
        async with asyncio.TaskGroup() as group:
            for _ in range(FLIGHTS):
                group.create_task(keep_producing(load))
            while await lines.readline():
                asked.put_nowait(True)
            for _ in range(FLIGHTS):
                asked.put_nowait(False)
    return enqueued


async def _input() -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    return reader


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main())
