"""Many seeds, over all processors, and what they came to."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from math import ceil

import msgspec

from holdfast.simulation.run import Result, run

FAULTS = ("kill", "stop", "isolate", "leave", "crash", "drain", "suspend")
SHARES = 8  # of the seeds a processor, at least: the last ones end about together
SHARE_MAX = 50  # seeds of one process: what killed nodes leave behind is never cleaned up


class Verdict(msgspec.Struct):
    """What a seed came to, small enough for a pipe."""

    seed: int
    violations: list[str]
    counts: dict[str, int]
    seconds: float


@dataclass(slots=True)
class Summary:
    """What many seeds came to."""

    seeds: int = 0
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    failed: list[Verdict] = field(default_factory=list)

    def add(self, verdict: Verdict) -> None:
        self.seeds += 1
        self.seconds += verdict.seconds
        self.counts.update(verdict.counts)
        if verdict.violations:
            self.failed.append(verdict)

    def line(self) -> str:
        counts = self.counts
        suffered = ", ".join(f"{counts[fault]:,} {fault}" for fault in FAULTS)
        return (
            f"{self.seeds:,} seeds, {self.seconds / 3600:,.1f} simulated hours, "
            f"{counts['created']:,} tasks, {counts['start']:,} attempts, faults: {suffered}; "
            f"{len(self.failed)} with a violation"
        )


def verdict_of(result: Result) -> Verdict:
    kept = ("created", "start", "moved", "fired", *FAULTS)
    counts = {name: count for name in kept if (count := result.counts[name])}
    texts = [str(violation) for violation in result.violations]
    return Verdict(result.plan.seed, texts, counts, result.seconds)


def lived(seeds: Sequence[int], *, processes: int) -> Iterator[Verdict]:
    """Every seed's verdict, in the order in which their shares end.

    Each in a process whose hashes do not vary: the order of sets is a part of a history.
    """
    if processes <= 1 and os.environ.get("PYTHONHASHSEED") == "0":
        yield from (verdict_of(run(seed)) for seed in seeds)
        return
    count = max(processes * SHARES, ceil(len(seeds) / SHARE_MAX))
    shares = [share for n in range(count) if (share := list(seeds[n::count]))]
    with ThreadPoolExecutor(processes) as pool:
        living = [pool.submit(lived_apart, share) for share in shares]
        try:
            for ended in as_completed(living):
                yield from ended.result()
        finally:
            pool.shutdown(cancel_futures=True)


def lived_apart(seeds: Iterable[int]) -> list[Verdict]:
    """What these seeds came to, in a process of their own."""
    command = [sys.executable, "-m", "holdfast.simulation", *map(str, seeds)]
    environ = os.environ | {"PYTHONHASHSEED": "0"}
    done = subprocess.run(command, stdout=subprocess.PIPE, env=environ, check=True)
    return [msgspec.json.decode(line, type=Verdict) for line in done.stdout.splitlines()]
