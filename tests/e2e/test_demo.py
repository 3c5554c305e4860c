"""`holdfast demo`: a guided minute that ends by itself and leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil

import holdfast
from holdfast.demo.numbers import Numbers
from holdfast.demo.show import PASTE
from holdfast.testing.processes import until

PACKAGE = Path(holdfast.__file__).parents[1]
COMMAND = [sys.executable, "-m", "holdfast.cli", "demo"]

KEPT = Numbers(
    orders=2,
    tasks=6,
    done=6,
    states={},
    retried=1,
    recovered=1,
    rolled_back=1,
    left_by_rollback=0,
    without_one_outcome=0,
    not_charged_once=0,
    express=1,
    overtaken=0,
    receipts=2,
    half_within_s=0.0,
    latest_s=0.1,
    too_early=0,
)


def environment(folder: Path) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(PACKAGE), "TMPDIR": str(folder)}


def test_the_demo_kills_a_node_loses_nothing_and_leaves_nothing_behind(tmp_path: Path):
    done = subprocess.run(
        COMMAND, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, timeout=90
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "kill -9" in done.stdout
    counts = {text: int(count) for count, text in re.findall(r"^ +(\d+)  (.+)$", done.stdout, re.M)}
    assert counts["tasks enqueued"] == counts["tasks done"] > 200
    assert counts["tasks recovered after kill -9"] >= 1
    assert counts["transactions rolled back, leaving 0 tasks"] >= 10
    assert counts["express orders charged first, overtaken by 0 of the others"] >= 1
    assert "\x1b" not in done.stdout
    assert list(tmp_path.iterdir()) == []
    assert done.stderr == ""


def test_an_interrupted_demo_leaves_nothing_behind(tmp_path: Path):
    with (tmp_path / "said").open("wb") as said:
        process = subprocess.Popen(
            COMMAND, cwd=tmp_path, env=environment(tmp_path), stdout=said, stderr=said
        )
    until(lambda: b"Node started" in (tmp_path / "said").read_bytes(), 30)
    nodes = psutil.Process(process.pid).children()

    process.send_signal(signal.SIGTERM)

    assert process.wait(30) == 130
    assert len(nodes) == 1
    assert not psutil.wait_procs(nodes, timeout=10)[1]
    assert [path.name for path in tmp_path.iterdir()] == ["said"]


def test_the_three_lines_of_the_demo_are_a_program(tmp_path: Path):
    (tmp_path / "app.py").write_text(PASTE, encoding="utf-8")

    done = subprocess.run(
        [*COMMAND[:-1], "task", "enqueue", "app", "hello", '{"name": "you"}'],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert len(PASTE.strip().splitlines()) == 3
    assert done.returncode == 0, done.stderr
    assert "created  true" in done.stdout


def test_every_broken_promise_is_named():
    broken = replace(
        KEPT,
        without_one_outcome=1,
        not_charged_once=1,
        left_by_rollback=1,
        overtaken=1,
        too_early=1,
        recovered=0,
    )

    assert KEPT.broken == []
    assert len(broken.broken) == 6
    assert "every committed order has exactly one outcome for each task: 1 do not" in broken.broken
