"""`python -m holdfast.chaos.blackouts --losses 200`: power losses under load, on one SQLite file.

Callers add tasks and a node runs them.  At any moment the power is lost: what is then on the disk
is opened by the SQLite of this Python, and must hold every answer that had been given.  Now and
then a node runs on from there, on its own copy, until nothing is left to do.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from holdfast.app import Holdfast
from holdfast.chaos import record
from holdfast.chaos.power import Disk, ForgetfulVfs, connector, missing
from holdfast.clock import SystemClock
from holdfast.stores.sqlite.store import SQLiteStore
from holdfast.task import State
from holdfast.telemetry.events import TaskSettled

FILE = "app.db"
WAIT_S = (0.0, 0.03)  # between two losses
GOES_ON_EVERY = 20
CALLERS = 4
CALL_S_MAX = 0.01  # between two calls of a caller
DRAIN_S_MAX = 30.0
QUICK: dict[str, Any] = {"renewer": "loop", "lease_s": 2.0, "tick_s": 0.1}


@dataclass(slots=True)
class Found:
    """What was seen."""

    losses: int = 0
    answers: int = 0  # that had been given, over all losses
    went_on: int = 0
    broken: list[str] = field(default_factory=list)


def _with_work(app: Holdfast) -> Callable[[int], Any]:
    @app.task(name="work")
    async def work(number: int) -> None:
        await asyncio.sleep(0.001)

    return work.enqueue


class Blackouts:
    """Load on a disk that forgets."""

    def __init__(self, folder: Path, rng: Random) -> None:
        self._folder = folder
        self._rng = rng
        self._disk = Disk()
        self._vfs = ForgetfulVfs(f"forgetful-{id(self)}", self._disk)
        self._added: list[int] = []
        self._done: list[int] = []
        self._has_power = asyncio.Event()
        self._has_power.set()
        self.found = Found()

    async def run(self, losses: int) -> Found:
        path = self._folder / FILE
        store = SQLiteStore(path, clock=SystemClock(), rng=self._rng, connect=connector(self._vfs))
        app = Holdfast(f"sqlite:///{path}", wrap_store=lambda _: store)
        app.events.listen(self._heard)
        enqueue = _with_work(app)
        async with app, app.node(**QUICK):
            callers = [asyncio.create_task(self._call(enqueue)) for _ in range(CALLERS)]
            try:
                for number in range(1, losses + 1):
                    await asyncio.sleep(self._rng.uniform(*WAIT_S))
                    await self._lose_power(number)
            finally:
                for caller in callers:
                    caller.cancel()
                await asyncio.gather(*callers, return_exceptions=True)
        return self.found

    async def _call(self, enqueue: Callable[[int], Any]) -> None:
        while True:
            handle = await enqueue(len(self._added))
            self._added.append(handle.id)
            await asyncio.sleep(self._rng.uniform(0, CALL_S_MAX))
            await self._has_power.wait()

    def _heard(self, event: object) -> None:
        if isinstance(event, TaskSettled):
            self._done.append(event.task)

    async def _lose_power(self, number: int) -> None:
        added, done = list(self._added), list(self._done)  # answered before the moment
        folder = self._folder / f"after-{number}"
        folder.mkdir()
        self._disk.after_power_loss(folder, self._rng)
        self.found.losses += 1
        self.found.answers += len(added) + len(done)
        broken = await asyncio.to_thread(missing, folder / FILE, added, done)
        if number % GOES_ON_EVERY == 0 and not broken:
            self._has_power.clear()  # one story at a time
            broken = await self._gone_on(folder / FILE)
            self._has_power.set()
        self.found.broken += [f"power loss {number}: {what}" for what in broken]
        if not broken:
            for file in folder.iterdir():
                file.unlink()
            folder.rmdir()

    async def _gone_on(self, file: Path) -> list[str]:
        """A new process would open the file, and finish what is in it."""
        app = Holdfast(f"sqlite:///{file}")
        _with_work(app)
        async with app, app.node(**QUICK) as node:
            await node.drained(DRAIN_S_MAX)
            counts = await (await app.store()).counts()
        self.found.went_on += 1
        left = {state.name: count for state, count in counts.items() if count}
        left.pop(State.DONE.name, None)
        return [f"left after the restart: {left}"] if left else []


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m holdfast.chaos.blackouts")
    parser.add_argument("--losses", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--record", type=Path, help="add the counts to the table of this page")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="holdfast-power-") as folder:
        found = asyncio.run(Blackouts(Path(folder), Random(options.seed)).run(options.losses))
    if options.record is not None:
        counts = {"power losses": found.losses, "answers looked for after them": found.answers}
        record.add(options.record, Counter(counts | {"answers lost": len(found.broken)}))
    for what in found.broken[:10]:
        sys.stdout.write(f"{what}\n")
    sys.stdout.write(
        f"{found.losses} power losses, {found.answers:,} answers looked for, "
        f"{found.went_on} restarts, {len(found.broken)} broken\n"
    )
    return 1 if found.broken else 0


if __name__ == "__main__":
    sys.exit(main())
