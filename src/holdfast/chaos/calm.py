"""`python -m holdfast.chaos.calm --tasks 1000000`: without faults, no task starts twice.

Three workers share the tasks on a private PostgreSQL, or an SQLite file with `--store sqlite`.
Every start is written down; each task must have exactly one.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.bench.ground import Place, ground
from holdfast.bench.load import BULK, QUEUE
from holdfast.bench.workers import Workers
from holdfast.clock import SystemClock
from holdfast.store import Store
from holdfast.task import State

NODES = 3
PATIENCE_S = 60.0  # without any progress


async def _added(place: Place, tasks: int) -> None:
    app = place.app()

    @app.task(name="work", queue=QUEUE)
    async def work(number: int, seconds: float) -> None:
        """Runs elsewhere: see `holdfast.bench.patient`."""

    async with app:
        for first in range(0, tasks, BULK):
            numbers = range(first, min(first + BULK, tasks))
            await work.enqueue_many([(number, 0.0) for number in numbers])


@asynccontextmanager
async def _served(place: Place) -> AsyncIterator[tuple[Store, Workers]]:
    async with place.store() as store, Workers(place, store) as workers:
        await asyncio.gather(*(workers.start() for _ in range(NODES)))
        yield store, workers


async def calm(place: Place, tasks: int) -> Counter[int]:
    """How often each task was started, by its id."""
    starts: Counter[int] = Counter()
    clock = SystemClock()
    async with _served(place) as (store, workers):
        adding = asyncio.create_task(_added(place, tasks))
        seen_s = clock.seconds()
        while clock.seconds() - seen_s < PATIENCE_S:
            await asyncio.sleep(0.5)
            new = [line.task for line in workers.look() if line.what == "start"]
            workers.lines.clear()
            starts.update(new)
            if new:
                seen_s = clock.seconds()
            elif adding.done() and (await store.counts()).get(State.DONE, 0) >= tasks:
                break
        await adding
    return starts


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m holdfast.chaos.calm")
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--store", choices=("postgres", "sqlite"), default="postgres")
    options = parser.parse_args()

    async def run() -> Counter[int]:
        with ground(options.store, None) as there:
            async with there.place() as place:
                return await calm(place, options.tasks)

    starts = asyncio.run(run())
    again = sum(count - 1 for count in starts.values())
    sys.stdout.write(f"{len(starts):,} of {options.tasks:,} tasks, {again} duplicate starts\n")
    return 1 if again or len(starts) != options.tasks else 0


if __name__ == "__main__":
    sys.exit(main())
