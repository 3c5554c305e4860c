"""Whole clusters under faults, by their seeds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast.simulation.plan import HABITS, HABITS_MAX, drawn
from holdfast.simulation.seeds import FAULTS, Summary, lived, lived_apart
from simulation.coverage_of_parts import LEFT_OUT, PARTS, SOURCE, files
from simulation.known_bugs import BUGS, planted

PACKAGE = Path(holdfast.__file__).parents[1]
SEEDS = 20

# Each broke a promise, before that was mended.
FOUND = {
    5: "a retry behind its younger sibling, and a trigger behind its own stored lane",
    8: "a share of a limit that its node forgot when the store failed",
    142: "a trigger that found the table full when it was put back",
    600: "a share that was granted for attempts which others had superseded",
    1486: "a grab that was refused for the epoch before, of a task that is ours again",
    1501: "an older version of a task, spilled in place of the newer one",
    2101: "a task that was grabbed while an older version of it stood apart, and never started",
    3111: "attempts that a node left behind because its good-bye failed",
    5543: "a later version of a task that waited for a grab which failed, and for ever",
    8429: "as many nodes as ran something when a limit was new, each with one task after the other",
    9497: "where a task stood in a partition that was lost, remembered for ever",
}


def command(*words: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    return subprocess.run(
        [sys.executable, "-m", "holdfast.cli", *words],
        env=kept | {"PYTHONPATH": str(PACKAGE)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.whole
def test_no_seed_breaks_a_promise():
    summary = Summary()
    for verdict in lived(sorted({*range(SEEDS), *FOUND}), processes=1):
        assert verdict.violations == [], f"holdfast sim --seed {verdict.seed} --trace"
        summary.add(verdict)

    assert summary.seeds >= SEEDS
    assert [fault for fault in FAULTS if not summary.counts[fault]] == []


@pytest.mark.whole
def test_a_seed_comes_to_the_same_alone_and_after_another_one():
    (alone,) = lived_apart([3111])

    assert lived_apart([2911, 3111])[1] == alone


def test_a_seed_draws_the_same_plan_every_time():
    assert drawn(12) == drawn(12)
    assert len({str(drawn(seed)) for seed in range(50)}) == 50


def test_every_second_seed_has_habits_and_some_seed_has_each():
    habits = [drawn(seed).habits for seed in range(100)]

    assert not any(habits[::2])
    assert all(2 <= len(some) <= HABITS_MAX for some in habits[1::2])
    assert frozenset().union(*habits) == set(HABITS)


def test_of_the_parts_only_code_of_real_processes_is_left_out():
    left_out = {path for path in LEFT_OUT if (SOURCE / path).is_file()}

    assert left_out == LEFT_OUT.keys() and len(left_out) <= 6
    assert all(files(patterns) for patterns in PARTS.values())


@pytest.mark.whole
def test_the_command_replays_a_seed_to_the_letter(tmp_path):
    done = [command("sim", "--seed", "107", "--out", str(tmp_path / f"{n}")) for n in range(2)]
    judged = command("verify", str(tmp_path / "0"))
    many = command("sim", "--seeds", "3", "--first", "5")
    wrong = command("sim", "--trace")

    assert [one.returncode for one in done] == [0, 0], done[0].stderr
    assert (tmp_path / "0").read_bytes() == (tmp_path / "1").read_bytes()
    assert (judged.returncode, judged.stdout) == (0, "")
    assert many.returncode == 0 and many.stdout.startswith("3 seeds, ")
    assert many.stdout.endswith("; 0 with a violation\n")
    assert wrong.returncode == 2 and "need one --seed" in wrong.stderr


@pytest.mark.whole
def test_a_broken_promise_ends_with_8_and_names_it(tmp_path):
    path = tmp_path / "history.jsonl"
    path.write_text('{"t": 1.0, "op": "bug", "what": "it broke"}\n', encoding="utf-8")

    done = command("verify", str(path))

    assert (done.returncode, done.stdout) == (8, "no bug: it broke\n")


@pytest.mark.parametrize("patch", sorted(BUGS.glob("*.patch")), ids=lambda patch: patch.stem)
def test_every_known_bug_can_still_be_planted(patch, tmp_path):
    planted(patch, tmp_path)
