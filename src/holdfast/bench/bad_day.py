"""A bad day: `make bad-day` tells it, about four minutes, on a private PostgreSQL.

Three workers run under load.  One is killed, one is stopped for longer than its stall limit and
lease, the server is restarted under all of them, and the clock of one is stepped by an hour,
forward and back.  Then the load ends, and every task must be DONE once.  On the way the tools of
the person on call say what they see.  Exit code 1 when a task is lost or has two outcomes.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from holdfast.bench.ground import Place
from holdfast.bench.recovery import Producer, doubled_outcomes, drained, running, waited
from holdfast.bench.workers import Workers
from holdfast.clock import SystemClock
from holdfast.store import Store
from holdfast.task import State
from holdfast.testing.postgres import PrivateServer

STOPPED_S = float(os.environ.get("HOLDFAST_BAD_DAY_STOPPED_S", "100"))
CALM_S = 5.0
DRAIN_S_MAX = 120.0
HOUR_S = 3_600


class Narrator:
    """Says what happens, with the seconds of the day."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._since_s = self._clock.seconds()

    def say(self, text: str) -> None:
        passed_s = self._clock.seconds() - self._since_s
        sys.stdout.write(f"{passed_s:6.1f} s  {text}\n")
        sys.stdout.flush()

    def quote(self, command: str, text: str) -> None:
        """What one of the tools has printed."""
        lines = "\n".join(f"            {line}" for line in text.rstrip().splitlines())
        sys.stdout.write(f"          $ {command}\n{lines}\n")
        sys.stdout.flush()


class BadDay:
    """The story, step by step."""

    def __init__(self, server: PrivateServer, place: Place, store: Store, workers: Workers) -> None:
        self._server = server
        self._place = place
        self._store = store
        self._workers = workers
        self._narrator = Narrator()
        self._say = self._narrator.say

    async def lived(self, producer: Producer, clock_file: Path) -> None:
        self._say("three workers serve, 150 tasks a second come in")
        await asyncio.sleep(CALM_S)
        await self._one_is_killed()
        await self._one_is_stopped()
        await self._the_server_is_restarted(producer)
        await self._a_clock_is_stepped(clock_file)
        await asyncio.sleep(CALM_S)

    async def judged(self, enqueued: int) -> int:
        """How many tasks are lost or doubled."""
        await drained(self._store, DRAIN_S_MAX)
        self._workers.look()
        counts = await self._store.counts()
        done = counts.pop(State.DONE, 0)
        others = ", ".join(f"{count} {state.name}" for state, count in counts.items() if count)
        doubled = doubled_outcomes(self._workers) + max(0, done - enqueued)
        lost = max(0, enqueued - done)
        refused = self._workers.log.count("superseded") + self._workers.log.count("has moved on")
        self._say(f"late outcomes that were refused: {refused}")
        self._say(f"left: {others or 'none'}")
        self._say(f"{enqueued} tasks, {lost} lost, {doubled} double outcomes")
        return lost + doubled

    # ── what happens ──────────────────────────────────────────────────────────────────────

    async def _one_is_killed(self) -> None:
        victim = self._workers.alive[0]
        await running(self._store, victim)
        at_s = self._workers.end(victim)
        assert victim.node is not None
        left = {row.id: row.version for row in await self._store.running_of(victim.node)}
        self._say(f"kill -9 of worker {victim.pid}; it was running {len(left)} tasks")
        waits_s = await waited(self._workers, self._store, left, at_s)
        self._say(f"all of them run again elsewhere after {max(waits_s, default=0.0):.1f} s")
        await self._ask("node", "list")
        worker = await self._workers.start()
        self._say(f"worker {worker.pid} takes its place")

    async def _one_is_stopped(self) -> None:
        frozen = self._workers.alive[0]
        await running(self._store, frozen)
        os.kill(frozen.pid, signal.SIGSTOP)
        self._say(f"worker {frozen.pid} is stopped (SIGSTOP) for {STOPPED_S:g} s")
        assert frozen.node is not None
        held = await self._store.running_of(frozen.node)
        await asyncio.sleep(CALM_S)
        if held:
            await self._ask("why", str(held[0].id))
        await asyncio.sleep(max(0.0, STOPPED_S - CALM_S - 1))
        await self._ask("node", "list")
        os.kill(frozen.pid, signal.SIGCONT)
        self._say("it goes on, and believes that nothing has happened")
        if held:
            await asyncio.sleep(2)
            await self._ask("why", str(held[0].id))

    async def _the_server_is_restarted(self, producer: Producer) -> None:
        before = producer.count
        await asyncio.to_thread(self._server.restart)
        self._say("PostgreSQL was restarted under all of them")
        while producer.count == before:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        self._say("tasks come in again")
        await asyncio.sleep(CALM_S)
        await self._ask("doctor")

    async def _a_clock_is_stepped(self, clock_file: Path) -> None:
        for step_s in (HOUR_S, -HOUR_S, 0):
            clock_file.write_text(f"{step_s:+d}\n")  # noqa: ASYNC240
            self._say(f"the clock of one worker is {step_s:+d} s off")
            await asyncio.sleep(CALM_S)
        await self._ask("top", "--once")

    # ── the tools of the person on call ───────────────────────────────────────────────────

    async def _ask(self, *words: str) -> None:
        known = {"HOLDFAST_URL": self._place.url, "NO_COLOR": "1", "COLUMNS": "100"}
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "holdfast.cli",
            *words,
            env=dict(os.environ) | known,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        text, _ = await process.communicate()
        self._narrator.quote(" ".join(("holdfast", *words)), text.decode(errors="replace"))


def misled(clock_file: Path) -> dict[str, str]:
    """The environment of a worker whose wall clock follows the file."""
    found = subprocess.run(
        ["faketime", "-f", "+0", "env"], capture_output=True, text=True, check=True
    ).stdout
    library = next(line for line in found.splitlines() if line.startswith("LD_PRELOAD="))
    return {
        "LD_PRELOAD": library.partition("=")[2],
        "FAKETIME_TIMESTAMP_FILE": str(clock_file),
        "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


async def day() -> int:
    with PrivateServer() as server:
        place = Place(server.url())
        await place.closed_store().migrate()
        clock_file = server.folder / "clock"
        clock_file.write_text("+0\n")
        clock_file.chmod(0o644)
        async with place.store() as store, Workers(place, store) as workers:
            await workers.start()
            await workers.start()
            await workers.start(environ=misled(clock_file))
            story = BadDay(server, place, store, workers)
            async with Producer(place) as producer:
                await story.lived(producer, clock_file)
            return await story.judged(producer.count)


def main() -> int:
    if shutil.which("faketime") is None:
        sys.stderr.write("faketime is missing: apt-get install faketime\n")
        return 2
    return 1 if asyncio.run(day()) else 0


if __name__ == "__main__":
    sys.exit(main())
