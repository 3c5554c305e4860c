"""The acts of the demo, in order.  What is on the screen is shown; what is proven is read back."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from holdfast.app import Holdfast
from holdfast.clock import Clock
from holdfast.config import Config
from holdfast.demo.child import NodeProcess
from holdfast.demo.numbers import Numbers, read_numbers
from holdfast.demo.shop import EXPRESS, STANDARD, Shop, opened
from holdfast.store import Filter, Store
from holdfast.task import State

EARLY, FLOOD, BURST, LATE = 20, 80, 10, 10  # orders: before the first node, beside it, …
PACE_S = 0.13
RUNNING_MIN = 4  # tasks that must be under way when the node is killed
ROLLED_BACK_EACH = 7
LOOK_S = 0.25
PATIENCE_S = 60.0


class Screen(Protocol):
    def act(self, text: str) -> None:
        """A new part of the story."""
        ...

    def progress(self, numbers: Numbers) -> None: ...


class Story:
    """The order service in this process, its only node in a child."""

    def __init__(self, folder: Path, screen: Screen, *, clock: Clock) -> None:
        self._folder = folder
        self._screen = screen
        self._clock = clock
        self._url = f"sqlite:///{folder / 'shop.db'}"
        self._number = 0
        self._child: NodeProcess | None = None

    async def tell(self) -> Numbers:
        """All of it; answers the numbers as they are at the end.  Leaves no process behind."""
        app = Holdfast(config=Config(url=self._url))
        async with app:
            self._store: Store = await app.store()
            self._shop = Shop(app)
            self._db: sqlite3.Connection = opened(self._folder / "shop.db")
            try:
                await self._acts()
                return await read_numbers(self._store, self._db)
            finally:
                if self._child is not None and self._child.is_alive:
                    await self._child.stop()
                self._db.close()

    async def _acts(self) -> None:
        say = self._screen.act
        say(f"A shop takes {EARLY} orders: each writes its row and 3 tasks in ONE transaction.")
        say(f"No node runs yet. Every {ROLLED_BACK_EACH}th customer walks away: rolled back.")
        await self._take_orders(EARLY, early=True)
        self._child = await self._start()
        say(f"Node started (process {self._child.pid}). Express orders go first.")
        await self._take_orders(FLOOD, pace_s=PACE_S)
        await self._take_orders(BURST)
        await self._until(self._is_busy, "tasks under way")
        await self._kill(self._child)
        say("The shop goes on taking orders: its transactions need no node.")
        await self._take_orders(LATE, pace_s=PACE_S)
        self._child = await self._start()
        say(f"A new node (process {self._child.pid}). The lease of the dead one ends after 2 s.")
        await self._until(self._is_all_done, "the end of every task")
        await self._child.stop()

    async def _start(self) -> NodeProcess:
        return await NodeProcess.start(self._folder, self._url)

    async def _kill(self, child: NodeProcess) -> None:
        if await child.kill() != -signal.SIGKILL:
            self._screen.act("The node had died before it could be killed.")
        held = await self._store.find(Filter(states=[State.PROCESSING]))
        self._screen.act(f"kill -9 {child.pid}: the node is dead, {len(held)} tasks under way.")

    async def _take_orders(self, count: int, *, early: bool = False, pace_s: float = 0) -> None:
        for _ in range(count):
            self._number += 1
            await self._shop.check_out(
                self._db,
                self._number,
                priority=EXPRESS if self._number % 4 == 0 else STANDARD,
                early=early,
                commits=self._number % ROLLED_BACK_EACH != 0,
            )
            await asyncio.sleep(pace_s)
            if pace_s and self._number % 4 == 0:
                await self._look()

    async def _until(self, holds: Callable[[Numbers, int], bool], what: str) -> None:
        """Wait for a condition that is read from the store."""
        started_s = self._clock.seconds()
        while self._clock.seconds() - started_s < PATIENCE_S:
            numbers = await self._look()
            if holds(numbers, numbers.states["PROCESSING"]):
                return
            if self._child is not None and not self._child.is_alive:
                break
            await asyncio.sleep(LOOK_S)
        self._screen.act(f"Waited in vain for {what}.")

    async def _look(self) -> Numbers:
        numbers = await read_numbers(self._store, self._db)
        self._screen.progress(numbers)
        return numbers

    @staticmethod
    def _is_busy(numbers: Numbers, running: int) -> bool:
        return running >= RUNNING_MIN

    @staticmethod
    def _is_all_done(numbers: Numbers, running: int) -> bool:
        return numbers.done == numbers.tasks
