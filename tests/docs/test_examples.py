"""The examples run, from any folder, and once more after they have ended."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from docs.pages import PROJECT
from docs.test_pages import environment

EXAMPLES = sorted((PROJECT / "examples").glob("*.py"))
RUN_S_MAX = 60


def started(example: Path, folder: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, example],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_example_runs_and_a_second_start_does_nothing_twice(example: Path, tmp_path: Path):
    first, second = started(example, tmp_path), started(example, tmp_path)

    assert len(second) == 1, "a second start has nothing left to do"
    assert second[-1] == first[-1]


def test_the_shop_keeps_what_it_says(tmp_path: Path):
    *messages, last = started(PROJECT / "examples/shop.py", tmp_path)

    assert last == "12 orders, 12 payments, at most 1 for one order"
    assert len(messages) == 24
    for customer in ("ada", "grace", "edsger"):
        theirs = [line for line in messages if line.startswith(customer)]
        thanks = [int(line.split()[-1]) for line in theirs if "thank you" in line]
        assert thanks == sorted(thanks), "one customer's messages keep their order"
