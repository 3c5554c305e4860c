"""Several nodes on one machine: each a process of its own, started again when it dies.

The children run `holdfast worker` in process groups of their own, so that Ctrl-C in the terminal
reaches the supervisor alone, which passes it on once.  Addresses travel in the environment, never
in argv.  When the supervisor dies, the children's stdin ends and they stop gracefully.
"""

from __future__ import annotations

import asyncio
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from contextlib import suppress

from holdfast.app import Holdfast
from holdfast.cli.metrics import MetricsPlace
from holdfast.clock import Clock, SystemClock
from holdfast.stores.sqlite.leases import SAFE_FOR_SEVERAL
from holdfast.telemetry.logs import LOGGER

BACK_OFF_S, BACK_OFF_S_MAX = 0.5, 30.0
STEADY_S = 60.0  # who ran this long starts again without delay
HOPELESS = frozenset({2, 3, 5})  # wrong usage or settings: starting again would not help


async def supervise(
    app: Holdfast, command: Sequence[str], count: int, metrics: MetricsPlace | None = None
) -> int:
    """Keep `count` children running until a signal; answer the exit code."""
    await _warn_about_sqlite(app)
    fleet = Fleet(command, clock=SystemClock(), metrics=metrics)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, fleet.pass_on, number)
    codes = await asyncio.gather(*(fleet.keep(place) for place in range(1, count + 1)))
    return max(codes, default=0)


class Fleet:
    """The children of one supervisor."""

    def __init__(
        self, command: Sequence[str], *, clock: Clock, metrics: MetricsPlace | None = None
    ) -> None:
        self._command = list(command)
        self._clock = clock
        self._metrics = metrics  # of the first child
        self._stopping = asyncio.Event()
        self._children: set[Process] = set()

    def pass_on(self, number: int) -> None:
        """Hand a signal to every child: the first means gracefully, the second at once."""
        self._stopping.set()
        for child in self._children:
            with suppress(ProcessLookupError):
                child.send_signal(number)

    async def keep(self, place: int) -> int:
        """One child after the other; the exit code of the last."""
        rest_s = BACK_OFF_S
        while True:
            code, ran_s = await self._run_once(place)
            if self._stopping.is_set():
                return max(code, 0) if code != -signal.SIGKILL else 1
            if code == 0:  # a person asked this node to drain: it ended on purpose
                LOGGER.info("node %d has ended as it was asked to", place)
                return 0
            if code in HOPELESS:
                self.pass_on(signal.SIGTERM)
                return code
            rest_s = BACK_OFF_S if ran_s >= STEADY_S else min(rest_s * 2, BACK_OFF_S_MAX)
            LOGGER.warning(
                "node %d ended with %s; it starts again in %g s", place, _ending(code), rest_s
            )
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), rest_s)
            if self._stopping.is_set():
                return 0

    async def _run_once(self, place: int) -> tuple[int, float]:
        started_s = self._clock.seconds()
        command = self._command
        if self._metrics is not None:
            command = command + self._metrics.options(place - 1)
        child = await asyncio.create_subprocess_exec(*command, stdin=PIPE, start_new_session=True)
        self._children.add(child)
        LOGGER.info("node %d started as process %d", place, child.pid, extra={"pid": child.pid})
        if self._stopping.is_set():  # the signal came while the child was being started
            child.send_signal(signal.SIGTERM)
        try:
            code = await child.wait()
        finally:
            self._children.discard(child)
            if child.stdin is not None:
                child.stdin.close()
        return code, self._clock.seconds() - started_s


async def _warn_about_sqlite(app: Holdfast) -> None:
    """Also shows, before anything is started, whether the store can be used at all."""
    async with app:
        found = await (await app.store()).durability()
    version = found.get("sqlite")
    if version and tuple(map(int, version.split("."))) < SAFE_FOR_SEVERAL:
        safe = ".".join(map(str, SAFE_FOR_SEVERAL))
        LOGGER.warning(
            "several nodes on one file need SQLite %s or later, this is %s: "
            "use one process, or PostgreSQL",
            safe,
            version,
        )


def _ending(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"
