"""`holdfast schedule` in a process of its own, on each store."""

from __future__ import annotations

import json

import pytest

from e2e.test_cli import assert_says, bare, folder, items, run

__all__ = ["bare", "folder", "run"]


def listed(run) -> dict[str, dict[str, object]]:
    return {row["name"]: row for row in items(run("schedule", "list", "--json"))}


def test_a_schedule_is_added_listed_shown_paused_resumed_and_dropped(run):
    at_three = ("--cron", "0 3 * * mon-fri", "--tz", "Europe/Berlin")
    added = run("schedule", "add", "orders", "nightly", "add", '{"a": 1}', *at_three, "--json")
    other = run("schedule", "add", "orders", "often", "add", "[1, 2]", "--every", "5m")
    assert (added.returncode, other.returncode) == (0, 0), added.stderr + other.stderr
    row = json.loads(added.stdout)
    assert row["schema"] == "holdfast.schedule.v1"
    assert row["when"] == "At 03:00 on Monday through Friday, Europe/Berlin"
    assert row["next_at"].endswith(":00:00.000+00:00")

    paused = run("schedule", "pause", "nightly", "often")
    assert (paused.returncode, paused.stdout) == (0, "")
    assert {name: row["state"] for name, row in listed(run).items()} == {
        "nightly": "paused",
        "often": "paused",
    }
    assert run("schedule", "resume", "often").returncode == 0
    table = run("schedule", "list").stdout.splitlines()
    assert table[0].split()[:4] == ["name", "when", "state", "next_at"]
    assert table[2].startswith("often    every 5 minutes") and " on " in table[2]
    shown = json.loads(run("schedule", "show", "nightly", "--json").stdout)
    assert shown["timing"] == {"cron": "0 3 * * MON-FRI", "tz": "Europe/Berlin", "catch_up": "one"}
    assert (shown["next_at"], shown["kind"], shown["source"]) == (None, "add", "run time")
    assert run("schedule", "drop", "nightly", "often").returncode == 0
    assert listed(run) == {}


def test_run_adds_a_task_that_can_be_shown(run):
    assert (
        run("schedule", "add", "orders", "yearly", "add", "[1]", "--every", "8760h").returncode == 0
    )

    ran = run("schedule", "run", "yearly", "--json")

    found = json.loads(ran.stdout)
    assert (ran.returncode, found["created"]) == (0, True)
    task = json.loads(run("task", "show", found["id"], "--json").stdout)
    assert task["metadata"]["holdfast.schedule"]["name"] == "yearly"


@pytest.mark.parametrize("verb", ["show", "run", "pause", "resume", "drop"])
def test_an_unknown_name_is_answered_with_exit_3(run, verb):
    run("schedule", "add", "orders", "yearly", "add", "[1]", "--every", "1h")

    assert_says(run("schedule", verb, "nightly"), "HF2102", 3, "there is no schedule 'nightly'")


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (["--cron", "0 0 30 2 *"], "HF1108", "never fires: there is no such day"),
        (["--cron", "* * * * *", "--tz", "Europe/Berlinn"], "HF1108", "'Europe/Berlin'"),
        (["--at", "2020-01-01T00:00Z"], "HF1108", "has passed"),
        (["--at", "2030-01-01T00:00"], "HF1001", "--at needs a time zone"),
        (["--every", "soon"], "HF1001", "--every"),
        (["--every", "1h", "--catch-up", "some"], "HF1108", "catch_up is one of"),
        (["--every", "1h", "--cron", "* * * * *"], "HF1001", "one of --cron, --every and --at"),
        ([], "HF1001", "one of --cron, --every and --at"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_reason(run, options, code, says):
    assert_says(run("schedule", "add", "orders", "x", "add", "[1]", *options), code, 2, says)


def test_next_prints_the_slots_by_both_clocks(bare):
    done = bare(
        "schedule", "next", "30 2 * * *", "--tz", "Europe/Berlin", "-n", "2",
        "--after", "2026-03-28T12:00Z",
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1:] == [
        "2026-03-29T03:00:00+02:00  2026-03-29T01:00:00+00:00",
        "2026-03-30T02:30:00+02:00  2026-03-30T00:30:00+00:00",
    ]
    assert "At 02:30 every day, Europe/Berlin" in done.stderr
