"""How many small bugs in the pure core the fast tests notice.

    python -m mutation [dispatch/backlog.py …] [--survivors]

The tests are imported and run once, to learn which of them runs which line.  Then each mutant gets
a process of its own, forked from this one, in which the changed functions take the place of the
true ones, and the tests that run its line, up to the first that fails.  What changes when a module
is imported needs a fresh interpreter.  A mutant that runs for too long, or needs too much memory,
is noticed as well.  Nothing is drawn by chance, so every run finds the same.

Exit 1: the score is below its mark.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from mutation.trials import Trials, fresh

MARK_PERCENT = 85.0
TESTS = Path(__file__).parents[1]
SOURCE = TESTS.parent / "src" / "holdfast"

# The pure core, by file; of some files only these functions.  Left out of dispatch: the
# dispatcher, its books and its gate, which await the store and the bus.
CORE: dict[str, tuple[str, ...]] = {
    "dispatch/alarm.py": (),  # its timers are the loop's, its tests run in virtual time
    "dispatch/backlog.py": (),
    "dispatch/columns.py": (),
    "dispatch/elders.py": (),
    "dispatch/intake.py": (),
    "dispatch/lanes.py": (),
    "dispatch/passes.py": (),
    "dispatch/size.py": ("counted", "_backlogs"),  # the others ask the store
    "dispatch/slots.py": (),
    "dispatch/stored.py": (),
    "dispatch/table.py": (),
    "limit.py": (),
    "node/trust.py": (),
    "policy.py": (),
    "ring.py": (),
    "schedule.py": (),
    "task.py": (),
    "verify/checkers.py": (),
}
CHOSEN = ("unit", "histories/test_histories.py", "simulation/test_checkers.py")


def main() -> int:
    parser = argparse.ArgumentParser(prog="mutation", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("modules", nargs="*", metavar="module", help="a part of the core")
    parser.add_argument("--survivors", action="store_true", help="list what no test noticed")
    parser.add_argument("--source", type=Path, default=SOURCE, help=argparse.SUPPRESS)
    parser.add_argument("--test", type=Path, action="append", help=argparse.SUPPRESS)
    parser.add_argument("--fresh", nargs=3, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets must not decide which mutants are noticed.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "mutation", *sys.argv[1:]])
    if asked.fresh:
        path, number, tests = asked.fresh
        return fresh(Path(path), int(number), Path(tests).read_text().splitlines())
    names = asked.modules or list(CORE)
    trials = Trials(asked.test or [TESTS / name for name in CHOSEN])
    modules = {name: (asked.source / name, CORE.get(name, ())) for name in names}
    scores = trials.run(modules, survivors=asked.survivors)
    killed, count = (sum(column) for column in zip(*scores, strict=True))
    percent = 100 * killed / max(count, 1)
    sys.stdout.write(f"mutation score {percent:.1f} %: {killed:,} of {count:,} mutants killed\n")
    return 0 if percent >= MARK_PERCENT else 1


if __name__ == "__main__":
    raise SystemExit(main())
