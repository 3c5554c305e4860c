"""What a newcomer and a machine type: every target is listed, and CI runs the same ones."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

PROJECT = Path(__file__).parents[2]


def test_every_target_is_listed_with_a_sentence():
    text = (PROJECT / "Makefile").read_text()
    [phony] = re.findall(r"^\.PHONY: (.*)$", text, re.MULTILINE)

    # The flags of a make that runs this test would be heard by the one that it starts.
    environment = {name: value for name, value in os.environ.items() if "MAKE" not in name}
    told = subprocess.run(
        ["make", "help"], cwd=PROJECT, env=environment, capture_output=True, text=True, check=True
    )

    assert {row.split()[0] for row in told.stdout.splitlines()} == set(phony.split())
    assert all(len(row.split()) > 2 for row in told.stdout.splitlines())


def test_the_whole_suite_writes_its_counts():
    assert "--requirements-json=$(COUNTS) $(ARGS)" in (PROJECT / "Makefile").read_text()


def test_ci_runs_the_same_target_as_people_and_once_more_what_failed():
    script = PROJECT / ".ci" / "run"

    assert os.access(script, os.X_OK)
    assert "set -euo pipefail" in script.read_text()
    assert "\nmake test || {" in script.read_text()
    assert 'make test ARGS="--last-failed' in script.read_text()
