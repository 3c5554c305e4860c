"""A few seconds of real faults: what `make chaos` does for as long as one likes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest

from holdfast.chaos import record
from holdfast.chaos.epoch import Tally
from holdfast.chaos.scenarios import SCENARIOS, Verdict
from holdfast.chaos.soak import Sample, Slope, slopes

LONG = "HOLDFAST_LONG" in os.environ
SECONDS = "60" if LONG else "4"


def run(tmp_path, *words):
    return subprocess.run(
        [sys.executable, "-m", "holdfast.chaos", *words],
        capture_output=True, text=True, timeout=240, check=False, cwd=tmp_path,
    )  # fmt: skip


@pytest.mark.parametrize("store", ["postgres", "sqlite"] if LONG else ["postgres"])
def test_nothing_is_lost_or_doubled_when_nodes_are_killed_and_stopped(tmp_path, store):
    page = tmp_path / "page.md"
    page.write_text(f"# Record\n\n{record.START}\n{record.END}\n\nEnd.\n")

    faults = ["--only", "node kills", "--only", "pauses"]
    done = run(
        tmp_path,
        "--store",
        store,
        "--seconds",
        SECONDS,
        *faults,
        "--record",
        str(page),
        "--seed",
        "3",
    )

    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1]
    assert "0 tasks lost, 0 double recorded outcomes" in last
    assert "| tasks lost | 0 |" in page.read_text() and page.read_text().endswith("\n\nEnd.\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a disk of its own")
@pytest.mark.parametrize("store", ["postgres", "sqlite"] if LONG else ["sqlite"])
def test_a_full_disk_refuses_and_loses_nothing_and_the_rate_comes_back(tmp_path, store):
    faults = ["--only", "full disks"]
    done = run(tmp_path, "--store", store, "--seconds", "1", *faults, "--seed", "3")

    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1]
    assert last.startswith("1 full disks,"), "it counts when the store has refused a call"
    assert "0 tasks lost, 0 double recorded outcomes" in last
    assert last.endswith("0 violations, 0 slow recoveries")


def test_the_table_adds_up(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"{record.START}\n{record.END}\n")
    tally = Tally(tasks=900, attempts=1_000)
    tally.faults["node kills"] = 7

    for _ in range(2):
        record.add(page, record.counted(tally))

    assert "| node kills | 14 |\n| tasks | 1,800 |\n| attempts | 2,000 |" in page.read_text()


def test_a_page_without_the_table_is_refused(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("nothing")

    with pytest.raises(ValueError, match=r"page\.md has no"):
        record.add(page, Counter(kills=1))


def test_a_scenario_passes_with_97_per_cent_of_the_rate():
    assert len(SCENARIOS) == 9
    assert Verdict("a", 100, 0, 97).is_passed
    assert not Verdict("a", 100, 100, 96.9).is_passed
    assert str(Verdict("a", 100, 0, 50)).endswith("50% FAILED")


def test_a_slope_is_what_grows_in_an_hour_after_the_warm_up():
    samples = [
        Sample(
            at_s=10.0 * n,
            rss_mb=100 + (50 if n < 25 else 0) + n / 36,
            descriptors=20,
            threads=3,
            dead_rows=0,
            lag_ms=1,
            left=0,
        )
        for n in range(100)
    ]

    found = {slope.name: slope.per_hour for slope in slopes(samples)}

    assert found["rss_mb"] == pytest.approx(10.0) and found["descriptors"] == 0


def test_slopes_take_the_place_of_those_of_the_run_before(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{record.SOAK_START}\nold\n{record.SOAK_END}\nafter\n")
    row = Slope("rss_mb", 100.0, 101.5, 2.0).row

    record.replace(page, row, record.SOAK_START, record.SOAK_END)

    assert row == "| rss mb | 100.0 | 101.5 | +2.00 |\n"
    assert page.read_text().startswith("before\n") and page.read_text().endswith("\nafter\n")
    assert row in page.read_text() and "old" not in page.read_text()
