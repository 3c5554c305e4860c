"""The workload: what is asked of each queue, and what is counted.

A cell starts with an empty store, and is cut after `CUT_S`.  Rates are tasks a second between the
first and the last note of the handlers, so the start of a worker is in nobody's figure.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench import side
from bench.catalog import Entry
from bench.keepers import Fsync, Keepers

HERE = Path(__file__).parent.absolute()
STOP_S_MAX = 3.0
START_S_MAX = 20.0
LOOK_S = 0.05
WARM_TASKS = 20  # when a worker has run as many, it is up
REST_S = 0.5  # until it sleeps again
BULKS = 20  # of `side.BULK` tasks each
ENDLESS = 10**9


@dataclass(frozen=True, slots=True)
class Size:
    """How much of everything."""

    cut_s: float = 60.0
    enqueue_s: float = 3.0
    fill_s: float = 15.0  # for the backlog of those who add one by one
    drain_tasks: int = 50_000
    drain_s: float = 30.0
    million: int = 1_000_000
    latency_tasks: int = 200
    sustained_s: float = 8.0


SMALL = Size(
    enqueue_s=0.2,
    fill_s=1.0,
    drain_tasks=1_000,
    million=2_000,
    latency_tasks=10,
    sustained_s=0.5,
)

Figures = dict[str, float | None]


class Failed(Exception):
    """The peer did not do what was asked; the message is its own last words."""


@dataclass(slots=True)
class Notes:
    """What the handlers of one cell have written."""

    path: Path

    @property
    def count(self) -> int:
        return self.path.stat().st_size // side.NOTE.size if self.path.exists() else 0

    def read(self) -> list[tuple[int, float]]:
        raw = self.path.read_bytes() if self.path.exists() else b""
        return list(side.NOTE.iter_unpack(raw[: len(raw) // side.NOTE.size * side.NOTE.size]))


@dataclass(frozen=True, slots=True)
class Run:
    """One queue on one empty store."""

    entry: Entry
    python: Path
    url: str
    notes: Notes
    log: Path
    size: Size

    def say(self, *words: str, within_s: float = 90.0) -> dict[str, Any]:
        """A command of the adapter, and what it printed at last."""
        try:
            done = subprocess.run(
                self._command(*words), env=self._env, cwd=HERE / "peers", timeout=within_s,
                capture_output=True, text=True, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise Failed(f"{' '.join(words)} took longer than {within_s:.0f} s") from None
        if done.returncode:
            raise Failed(f"{' '.join(words)}: {done.stderr.strip()[-500:]}")
        lines = done.stdout.strip().splitlines()
        return json.loads(lines[-1]) if lines and lines[-1].startswith("{") else {}

    @contextmanager
    def worker(self) -> Iterator[None]:
        """A worker with all its processes, as long as the block lasts."""
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                self._command("work"), env=self._env, cwd=HERE / "peers",
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
            try:
                yield
            finally:
                _end_group(process)

    def wait(self, count: int, within_s: float) -> None:
        """Until so many notes are there, or until it takes too long."""
        until = time.monotonic() + within_s
        while self.notes.count < count and time.monotonic() < until:
            time.sleep(LOOK_S)

    def last_words(self) -> str:
        return self.log.read_text(errors="replace")[-500:] if self.log.exists() else ""

    def _command(self, *words: str) -> list[str]:
        return [str(self.python), "-c", "import side; side.main()", self.entry.adapter, *words]

    @property
    def _env(self) -> dict[str, str]:
        ours = {
            "QUEUE_URL": self.url,
            "QUEUE_DIARY": str(self.notes.path),
            "PYTHONPATH": f"{HERE}{os.pathsep}{HERE / 'peers'}",
        }
        return {**os.environ, **ours, **self.entry.settings}


@contextmanager
def prepared(
    entry: Entry, python: Path, keepers: Keepers, size: Size, fsync: Fsync = "always"
) -> Iterator[Run]:
    """The queue with its tables on an empty store."""
    with keepers.empty(entry.keeper, fsync) as url:
        folder = Path(keepers.folder)
        notes, log = folder / "notes", folder / f"{entry.name}.log"
        for left in (notes, log):
            left.unlink(missing_ok=True)
        run = Run(entry, python, url, Notes(notes), log, size)
        run.say("setup")
        yield run


def enqueue(run: Run, how: str) -> Figures:
    """Tasks a second that the producer adds, nobody working beside it."""
    many = side.BULK * BULKS if how == "bulk" else ENDLESS
    said = run.say("enqueue", how, str(many), str(run.size.enqueue_s))
    return {f"enqueue_{how}": said["added"] / said["took_s"]}


def drain(run: Run) -> Figures:
    """Tasks a second of a worker that finds a backlog."""
    size = run.size
    how, seconds = ("bulk", size.cut_s / 2) if run.entry.has_bulk else ("concurrent", size.fill_s)
    return _drained(run, how, size.drain_tasks, seconds, "drain")


def million(run: Run) -> Figures:
    """The same with a million waiting: two thirds of the time to add them, a third to run."""
    seconds = run.size.cut_s * 2 / 3
    return _drained(run, "bulk", run.size.million, seconds, "million", needs_all=True)


def _drained(
    run: Run, how: str, tasks: int, seconds: float, name: str, *, needs_all: bool = False
) -> Figures:
    added = run.say("enqueue", how, str(tasks), str(seconds))["added"]
    if needs_all and added < tasks:
        raise Failed(f"added {added:,} of {tasks:,} tasks in {seconds:.0f} s")
    with run.worker():
        run.wait(added, run.size.drain_s if name == "drain" else run.size.cut_s / 3)
    return _rated(run, name, added)


def latency(run: Run, name: str = "latency") -> Figures:
    """Milliseconds from the call of enqueue to the start of the handler, worker idle."""
    with run.worker():
        _warm(run)
        before = run.notes.count
        said = run.say("latency", str(run.size.latency_tasks))
        run.wait(before + run.size.latency_tasks, 10.0)
        notes = run.notes.read()[before:]
    started = {number: at for number, at in reversed(notes)}
    waits = sorted(
        1e3 * (started[number] - at)
        for number, at in enumerate(said["called"])
        if number in started
    )
    if len(waits) < run.size.latency_tasks:
        raise Failed(f"{len(waits)} of {run.size.latency_tasks} tasks ran: {run.last_words()}")
    return {f"{name}_p50": median(waits), f"{name}_p99": waits[int(len(waits) * 0.99)]}


def sustained(run: Run, name: str = "sustained") -> Figures:
    """Tasks a second that come to their handlers while as many producers add as can."""
    with run.worker():
        _warm(run)
        before = run.notes.count
        said = run.say("enqueue", "concurrent", str(ENDLESS), str(run.size.sustained_s))
        ended = said["began"] + said["took_s"]
        notes = run.notes.read()[before:]
    return {name: sum(said["began"] <= at < ended for _, at in notes) / said["took_s"]}


def pinned(run: Run, keepers: Keepers) -> Figures:
    """`sustained` while a snapshot is held open, which keeps dead rows from being removed."""
    with keepers.snapshot(run.url):
        return sustained(run, "pinned")


def _warm(run: Run) -> None:
    """The worker is up when a few tasks have come through, and has slept since."""
    run.say("enqueue", "single", str(WARM_TASKS), "10")
    run.wait(WARM_TASKS, START_S_MAX)
    if run.notes.count < WARM_TASKS:
        raise Failed(f"the worker did not start: {run.last_words()}")
    time.sleep(REST_S)


def _rated(run: Run, name: str, added: int) -> Figures:
    notes = run.notes.read()
    if len(notes) < 2:
        raise Failed(f"{len(notes)} of {added} tasks ran: {run.last_words()}")
    times = sorted(at for _, at in notes)
    again = Counter(number for number, _ in notes)
    took_s = times[-1] - times[0]
    return {
        name: (len(times) - 1) / took_s,
        f"{name}_share": len(again) / added,
        f"{name}_twice": float(sum(count > 1 for count in again.values())),
    }


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """The worker and whatever it started: its session is its own."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(STOP_S_MAX)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue
