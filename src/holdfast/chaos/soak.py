"""`python -m holdfast.chaos.soak --seconds 3600`: what grows when nothing goes wrong for long.

Two workers run under a steady load on a private PostgreSQL.  Memory, descriptors and threads of
the workers, dead rows of the tables, the lag of the loops and the time from enqueue to start are
read every few seconds; a line through each after the warm-up says how much it grows in an hour.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.chaos import record
from holdfast.chaos.cluster import cluster
from holdfast.clock import SystemClock
from holdfast.store import Store
from holdfast.testing.postgres import PrivateServer

NODES = 2
PER_SECOND = 400.0
SAMPLE_S = 5.0
WARM_UP = 0.25  # of the time: caches fill, the allocator finds its size
HOUR_S = 3_600.0
PROC = Path("/proc")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
HEAD = "| | warm | at the end | in an hour |\n|---|---|---|---|"
DEAD_ROWS = "SELECT coalesce(sum(n_dead_tup), 0) FROM pg_stat_user_tables"


@dataclass(frozen=True, slots=True)
class Sample:
    """One look.  Sums over all workers, but for the lag, which is the worst."""

    at_s: float
    rss_mb: float
    descriptors: float
    threads: float
    dead_rows: float
    lag_ms: float
    left: float  # tasks that wait or run


@dataclass(frozen=True, slots=True)
class Slope:
    name: str
    first: float
    last: float
    per_hour: float

    def __str__(self) -> str:
        return f"{self.name:12} {self.first:12,.1f} {self.last:12,.1f} {self.per_hour:+14,.2f}"

    @property
    def row(self) -> str:
        name = self.name.replace("_", " ")
        return f"| {name} | {self.first:,.1f} | {self.last:,.1f} | {self.per_hour:+,.2f} |\n"


def slopes(samples: Sequence[Sample]) -> list[Slope]:
    """A straight line through each figure after the warm-up, by least squares."""
    warm = list(samples)[int(len(samples) * WARM_UP) :]
    names = [name for name in Sample.__slots__ if name != "at_s"]
    return [_slope(name, warm) for name in names]


def _slope(name: str, samples: Sequence[Sample]) -> Slope:
    times = [sample.at_s for sample in samples]
    values = [float(getattr(sample, name)) for sample in samples]
    mid_t, mid_v = sum(times) / len(times), sum(values) / len(values)
    spread = sum((t - mid_t) ** 2 for t in times)
    together = sum((t - mid_t) * (v - mid_v) for t, v in zip(times, values, strict=True))
    per_s = together / spread if spread else 0.0
    return Slope(name, values[0], values[-1], per_s * HOUR_S)


async def _sample(server: PrivateServer, store: Store, pids: Sequence[int], at_s: float) -> Sample:
    (dead,) = await asyncio.to_thread(server.execute, DEAD_ROWS)
    members = await store.members()
    lags = [float(member.facts.get("lag_s") or 0.0) for member in members if member.is_alive]
    counts = await store.counts()
    left = sum(
        count for state, count in counts.items() if state.name in ("SUBMITTED", "PROCESSING")
    )
    return Sample(
        at_s,
        sum(_pages(pid) for pid in pids) * PAGE_BYTES / 1e6,
        sum(len(os.listdir(PROC / str(pid) / "fd")) for pid in pids),
        sum(len(os.listdir(PROC / str(pid) / "task")) for pid in pids),
        float(dead),
        1_000 * max(lags, default=0.0),
        left,
    )


def _pages(pid: int) -> int:
    return int((PROC / str(pid) / "statm").read_text().split()[1])


async def soaked(seconds: float) -> list[Sample]:
    clock, samples = SystemClock(), list[Sample]()
    async with cluster(NODES, PER_SECOND) as there:
        workers = there.workers
        since_s = clock.seconds()
        while clock.seconds() - since_s < seconds:
            await asyncio.sleep(SAMPLE_S)
            there.load.lines.clear()  # nobody judges them here, and they would grow
            workers.look()
            workers.lines.clear()
            pids = [worker.pid for worker in workers.alive]
            at_s = clock.seconds() - since_s
            samples.append(await _sample(there.server, there.store, pids, at_s))
    return samples


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m holdfast.chaos.soak")
    parser.add_argument("--seconds", type=float, default=HOUR_S)
    parser.add_argument("--record", type=Path, help="write the slopes into this page")
    options = parser.parse_args()
    samples = asyncio.run(soaked(options.seconds))
    found = slopes(samples)
    said = f"{len(samples)} samples over {samples[-1].at_s:,.0f} s at {PER_SECOND:g}/s"
    sys.stdout.write(f"{'':12} {'warm':>12} {'at the end':>12} {'in an hour':>14}\n")
    for slope in found:
        sys.stdout.write(f"{slope}\n")
    if options.record is not None:
        day = SystemClock().now().date()
        table = f"{HEAD}\n{''.join(slope.row for slope in found)}\n{day}: {said}."
        record.replace(options.record, table, record.SOAK_START, record.SOAK_END)
    sys.stdout.write(f"{said}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
