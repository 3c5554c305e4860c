"""The callers: they add tasks at a steady rate and write down what they were told."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Self

from holdfast.app import Holdfast
from holdfast.bench.ground import Place
from holdfast.bench.load import QUEUE
from holdfast.clock import SystemClock
from holdfast.errors import Unavailable
from holdfast.verify.history import Line

KEYS = 20  # ordering keys
ORDERED = 0.2  # of the tasks have one
LONG = 0.1  # of the tasks run longer than a lease
WORK_S, LONG_S = 0.1, 3.0
AGAIN_S = 0.2


class Load:
    """One task after the other, each under an id of its own, until it is taken over."""

    def __init__(self, place: Place, rng: Random, per_second: float, *, long: float = LONG) -> None:
        self._long = long
        self.per_second = per_second
        self.count = 0
        self.refused = 0  # calls that were answered with an error, and repeated
        self.lines: list[Line] = []
        self._app: Holdfast = place.app()
        self._rng = rng
        self._clock = SystemClock()
        # From the monotonic clock, which diaries use, to the wall clock, which servers use.
        self.offset_s = self._clock.now().timestamp() - self._clock.seconds()
        self._is_enough = False
        self._loop: asyncio.Task[None] | None = None

        @self._app.task(name="work", queue=QUEUE)
        async def work(number: int, seconds: float) -> None:
            """Runs elsewhere: see `holdfast.bench.patient`."""

        self._work = work

    async def __aenter__(self) -> Self:
        await self._app.store()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
        await self._app.close()

    def start(self) -> None:
        self._loop = asyncio.create_task(self._produce())

    async def stop(self) -> None:
        """What is under way is finished.  Safe to repeat."""
        self._is_enough = True
        if self._loop is not None:
            await self._loop

    async def burst(self, count: int) -> None:
        """So many at once, beside the others."""
        await self._work.enqueue_many([(0, WORK_S)] * count)
        self.count += count

    async def _produce(self) -> None:
        due_s, number = self._clock.seconds(), 0
        adding: set[asyncio.Task[None]] = set()
        while not self._is_enough:
            number += 1
            due_s += 1 / self.per_second
            await asyncio.sleep(max(0.0, due_s - self._clock.seconds()))
            task = asyncio.create_task(self._add(number))
            adding.add(task)
            task.add_done_callback(adding.discard)
        await asyncio.gather(*adding)

    async def _add(self, number: int) -> None:
        rng = self._rng
        key = f"k{rng.randrange(KEYS)}" if rng.random() < ORDERED else None
        seconds = LONG_S if key is None and rng.random() < self._long else WORK_S
        task = self._work.options(external_id=f"r{number}", ordering_key=key)
        while True:
            self._note("invoke", number)
            try:
                handle = await task.enqueue(number, seconds)
            except Unavailable:
                self.refused += 1
                self._note("info", number)  # it may be there: the same id asks again
                await asyncio.sleep(AGAIN_S)
            else:
                self.count += 1
                self._note("ok", number, task=handle.id)
                return

    def _note(self, phase: str, number: int, **fields: object) -> None:
        t = self._clock.seconds() + self.offset_s
        line = {"t": t, "op": "enqueue", "phase": phase, "request": f"r{number}"}
        self.lines.append(line | fields)
