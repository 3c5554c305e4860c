"""`python -m bench`: Holdfast beside its peers, played small with those that need no network."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "benchmarks.md"


def played(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    return subprocess.run(
        [sys.executable, "-m", "bench", *words],
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
    assert done.stderr.startswith("no such peer: nobody; there are holdfast, pgqueuer, ")
