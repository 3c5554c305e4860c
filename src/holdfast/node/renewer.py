"""The renewer, seen from its node: a process that is started, fed with beats, heard and replaced.

`holdfast.node.renewing` tells what it does.  The node does not depend on it: while there is none,
its own beat renews the lease, as long as nothing holds the loop up.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from subprocess import PIPE, Popen

from holdfast.clock import Clock
from holdfast.node import renewer_process
from holdfast.node.renewal import BEAT, BYE, Order, Report
from holdfast.telemetry.events import Events, RenewerLost, StoreFailed

BEAT_PART, BEAT_S_MAX = 6, 0.5  # a beat each sixth of a lease, or sooner
BACK_OFF_S, BACK_OFF_S_MAX = 0.5, 30.0
STEADY_S = 60.0  # who ran this long is replaced without delay
SILENT_LEASES = 3  # a process that says nothing for so long hangs, and is replaced
LEAVE_S = 1.0
LOOK_S = 0.01
READ_BYTES = 1 << 16

# What an interpreter and a driver may need.  Nothing else of our environment is handed on, because
# whoever may read it there could find a password; what a driver takes from it goes by the pipe.
KEPT = ("HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "PYTHONHOME",
        "SSL_CERT_FILE", "SSL_CERT_DIR", "KRB5CCNAME")  # fmt: skip


def drivers_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What PostgreSQL's clients read from the environment, PGPASSWORD for one."""
    return {name: value for name, value in environ.items() if name.startswith("PG")}


def is_startable() -> bool:
    """Whether our interpreter is a program that can be started: inside of a web server it is not,
    though that may give its own name for it."""
    return Path(sys.executable or "").name.startswith(("python", "pypy"))


class Renewer:
    """One process after the other, for as long as the node lives."""

    def __init__(
        self, order: Order, *, heard: Callable[[Report], None], clock: Clock, events: Events
    ) -> None:
        self._order = order
        self._heard = heard
        self._clock = clock
        self._events = events
        self._beat_s = min(order.lease_s / BEAT_PART, BEAT_S_MAX)
        self._process: Popen[bytes] | None = None
        self._rest = b""
        self._unanswered = 0  # beats since it last said something; a pause of ours adds none
        self._has_spoken = False
        self._ended = asyncio.Event()

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def keep(self) -> None:
        """Until we are cancelled; then the process is told to go, and has gone."""
        rest_s = BACK_OFF_S
        while True:
            started = self._clock.seconds()
            reason = await self._run_once()
            if self._clock.seconds() - started >= STEADY_S:
                rest_s = BACK_OFF_S
            self._events.emit(RenewerLost(self._order.node, reason, rest_s))
            await asyncio.sleep(rest_s)
            rest_s = min(rest_s * 2, BACK_OFF_S_MAX)

    async def _run_once(self) -> str:
        """The life of one process; answers why it is over."""
        try:
            process = self._process = self._started()
        except OSError as error:
            return f"cannot be started ({error})"
        assert process.stdin is not None and process.stdout is not None
        loop, news = asyncio.get_running_loop(), process.stdout.fileno()
        os.set_blocking(news, False)
        loop.add_reader(news, self._read, news)
        try:
            await self._feed(process.stdin.fileno())
        finally:
            loop.remove_reader(news)
            await _dismiss(process, within_s=LEAVE_S if self._has_spoken else 0.0)
            self._process = None
        return "was silent" if not self._ended.is_set() else f"ended with {_ending(process)}"

    def _started(self) -> Popen[bytes]:
        environment = {name: os.environ[name] for name in KEPT if name in os.environ}
        # All that we can import, it can too, without looking for it again.
        root = str(Path(renewer_process.__file__).parents[2])
        environment["PYTHONPATH"] = os.pathsep.join([root, *filter(None, sys.path)])
        name = f"holdfast renewer of {self._order.node}"  # for people who look at `ps`
        process = Popen(
            [sys.executable, "-S", "-P", renewer_process.__file__, name],
            stdin=PIPE,
            stdout=PIPE,
            bufsize=0,
            env=environment,
            start_new_session=True,  # Ctrl-C in the terminal is the node's to handle
        )
        assert process.stdin is not None
        os.write(process.stdin.fileno(), self._order.line)
        os.set_blocking(process.stdin.fileno(), False)
        self._rest, self._unanswered, self._has_spoken = b"", 0, False
        self._ended.clear()
        return process

    async def _feed(self, descriptor: int) -> None:
        """Beat until the process has ended, or says nothing any more."""
        silent_max = SILENT_LEASES * self._order.lease_s / self._beat_s
        while not self._ended.is_set() and self._unanswered < silent_max:
            with suppress(OSError):  # it reads no more: the silence tells, or its end
                os.write(descriptor, BEAT)
            self._unanswered += 1
            with suppress(TimeoutError):
                async with asyncio.timeout(self._beat_s):
                    await self._ended.wait()

    def _read(self, descriptor: int) -> None:
        try:
            read = os.read(descriptor, READ_BYTES)
        except BlockingIOError:
            return
        if not read:
            asyncio.get_running_loop().remove_reader(descriptor)
            self._ended.set()
            return
        *lines, self._rest = (self._rest + read).split(b"\n")
        self._unanswered, self._has_spoken = 0, True
        for line in lines:
            report = Report.of_line(line)
            if report.what == "failed":
                self._events.emit(StoreFailed("renew", report.error))
            self._heard(report)


async def _dismiss(process: Popen[bytes], *, within_s: float) -> None:
    """Say bye, and wait until it has gone.

    It keeps nothing that a kill could harm, so nobody waits for one that is only just starting.
    """
    assert process.stdin is not None and process.stdout is not None
    with suppress(OSError):
        os.write(process.stdin.fileno(), BYE)
    process.stdin.close()
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while process.poll() is None:  # noqa: ASYNC110
                    await asyncio.sleep(LOOK_S)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        process.stdout.close()


def _ending(process: Popen[bytes]) -> str:
    code = process.returncode
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"
