"""How many lines of each part the simulation alone runs.

    python tests/simulation/coverage_of_parts.py [--seeds 200] [--first 0] [--missing]

One process lives through the seeds.  Exit 1: the parts together are below their mark.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import coverage

SOURCE = Path(__file__).parents[2] / "src" / "holdfast"
SEEDS = 200
MARK_PERCENT = 90.0
PARTS = {
    "client": ("client*.py",),
    "node": ("node/*.py",),
    "dispatch": ("dispatch/*.py",),
    "worker": ("worker/*.py",),
    "duties": ("duties/*.py",),
    "ring": ("ring*.py",),
}
BESIDE = {"coordinator": ("coordinators/sql.py",)}  # told, not counted
PROCESS = "the code of a real operating-system process"
PIPE = "what a node does with the pipes and signals of a real process"
LEFT_OUT = {
    "node/renewer.py": PIPE,
    "node/renewer_process.py": PROCESS,
    "node/renewing.py": PROCESS,
    "worker/child.py": PROCESS,
    "worker/spawned.py": PIPE,
    "worker/tail.py": PIPE,
}
NO_CODE = (r"if TYPE_CHECKING:", r"^\s*\.\.\.$")  # for type checkers only, and bodies of protocols


class Count(NamedTuple):
    """Lines with code, and those of them that were not run."""

    lines: int
    missing: int

    @property
    def percent(self) -> float:
        return 100.0 * (self.lines - self.missing) / max(self.lines, 1)

    def __str__(self) -> str:
        return f"{self.percent:5.1f} %  {self.lines - self.missing:5,} of {self.lines:5,} lines"


def live(seeds: Iterable[int]) -> int:
    """Live through the seeds; answers how many broke a promise."""
    from holdfast.simulation.run import run

    return sum(bool(run(seed).violations) for seed in seeds)


def files(patterns: Iterable[str]) -> list[Path]:
    found = sorted(path for pattern in patterns for path in SOURCE.glob(pattern))
    assert found, f"nothing is named {', '.join(patterns)}"
    return [path for path in found if str(path.relative_to(SOURCE)) not in LEFT_OUT]


def counted(cover: coverage.Coverage, patterns: Iterable[str], *, missing: bool) -> Count:
    total = Count(0, 0)
    for path in files(patterns):
        _, lines, _, missed, text = cover.analysis2(str(path))
        total = Count(total.lines + len(lines), total.missing + len(missed))
        if missing and missed:
            one = Count(len(lines), len(missed))
            sys.stdout.write(f"  {one.percent:5.1f} %  {path.relative_to(SOURCE)}: {text}\n")
    return total


def told(cover: coverage.Coverage, *, missing: bool) -> Count:
    """Print a line for each part; answers the parts that count, together."""
    together = Count(0, 0)
    for name, patterns in (PARTS | BESIDE).items():
        count = counted(cover, patterns, missing=missing)
        sys.stdout.write(f"{name:12} {count}\n")
        if name in PARTS:
            together = Count(together.lines + count.lines, together.missing + count.missing)
    sys.stdout.write(f"{'together':12} {together}\n")
    for name, reason in LEFT_OUT.items():
        sys.stdout.write(f"left out: {name} ({reason})\n")
    return together


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--missing", action="store_true", help="list the lines that nothing ran")
    asked = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets is a part of a history: only with fixed hashes it comes back.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, *sys.argv])
    import coverage  # only here: the names above are tested without it

    cover = coverage.Coverage(
        data_file=None, config_file=False, include=[f"{SOURCE}/*"], messages=False
    )
    for words in NO_CODE:
        cover.exclude(words)
    cover.start()
    broken = live(range(asked.first, asked.first + asked.seeds))
    cover.stop()
    sys.stdout.write(f"{asked.seeds} seeds, {broken} with a violation\n")
    together = told(cover, missing=asked.missing)
    if together.percent < MARK_PERCENT:
        sys.stdout.write(f"below {MARK_PERCENT:g} %\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
