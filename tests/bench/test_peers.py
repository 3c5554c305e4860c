"""`python -m bench`: Holdfast beside its peers, played small with those that need no network."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "benchmarks.md"


JUDGE = """
from bench import report
from bench.catalog import ENTRIES

figures = {
    "holdfast": {"drain": 30.0, "latency_p50": 3.0},
    "holdfast-1000": {"drain": 36.0, "latency_p50": 3.2},
    "pgqueuer": {"drain": 12.0, "latency_p50": 4.0},
    "holdfast-sqlite": {"drain": 50.0, "latency_p50": 2.5},
    "huey": {"drain": 10.0, "latency_p50": 9.0},
    "taskiq": {"drain": 90.0, "latency_p50": 1.9},
}
results = [{"peer": peer, "cell": "", "figures": found} for peer, found in figures.items()]
print(*report.verdicts(ENTRIES, report.gathered(results)), sep="\\n")
"""


def played(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return python(folder, "-m", "bench", *words)


def python(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    return subprocess.run(
        [sys.executable, *words],
        env={**os.environ, "PYTHONPATH": path},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_cells_are_measured_and_the_page_is_rewritten_between_its_lines(tmp_path):
    every = "enqueue_single,enqueue_concurrent,enqueue_bulk,drain,latency,sustained,pinned,million"
    cells = every if "HOLDFAST_LONG" in os.environ else "drain"
    docs = tmp_path / "docs"
    docs.mkdir()
    shutil.copy(PAGE, docs)

    options = "--peers holdfast,holdfast-sqlite --rounds 1 --small --out docs --cells"
    done = played(tmp_path, *options.split(), cells)

    assert done.returncode == 0, done.stderr
    assert "failed" not in done.stdout
    for cell in cells.split(","):
        assert done.stdout.count(f" {cell} ") >= (1 if cell == "pinned" else 2), done.stdout
    assert "drain_twice 0.0" in done.stdout
    page = (docs / PAGE.name).read_text()
    before, _, rest = PAGE.read_text().partition("<!-- figures: make bench-peers -->")
    assert page.startswith(before) and "| holdfast-sqlite |" in page and "PostgreSQL 18" in page
    assert page.endswith(rest.partition("<!-- end of figures -->")[2])
    assert (docs / "benchmarks.svg").read_text().startswith("<?xml")


def test_a_peer_that_does_not_exist_is_named(tmp_path):
    done = played(tmp_path, "--peers", "holdfast,nobody")

    assert done.returncode == 1
    assert done.stderr.startswith("no such peer: nobody; there are holdfast, holdfast-1000, ")


def test_our_best_is_put_beside_the_best_of_the_others(tmp_path):
    done = python(tmp_path, "-c", JUDGE)

    assert done.stdout.splitlines() == [
        "drain on PostgreSQL: holdfast-1000 36/s, 3.0 times the best peer, pgqueuer with 12/s",
        "drain on SQLite: holdfast-sqlite 50/s, 5.0 times the best peer, huey with 10/s",
        "latency with synced enqueues, p50: holdfast-sqlite 2.5 ms; the lowest of the peers is "
        "taskiq with 1.9 ms",
    ]
