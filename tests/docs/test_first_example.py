"""The first example of the README, as a newcomer would try it: pasted, started, killed, started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from docs.pages import page
from holdfast.store import Filter
from holdfast.testing.apps import fresh, migrate
from holdfast.testing.processes import until

PACKAGE = Path(holdfast.__file__).parents[1]
LINES_BEFORE_KILL = 8
RUN_S_MAX = 60


def first_example() -> str:
    return next(block.code for block in page("README.md").blocks if block.language == "python")


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    return kept | {"PYTHONPATH": str(PACKAGE), "PYTHONUNBUFFERED": "1"}


@pytest.fixture
def folder(tmp_path: Path, store_url: str) -> Path:
    """An empty folder with the example in it; the store's address stands in the example."""
    folder = tmp_path / "empty"
    folder.mkdir()
    code = first_example()
    assert code.count('"sqlite:///orders.db"') == 1
    (folder / "app.py").write_text(code.replace("sqlite:///orders.db", store_url), encoding="utf-8")
    return folder


async def test_the_first_example_survives_kill_9_and_every_task_has_run(
    folder: Path, store_url: str
):
    await migrate(store_url)
    printed = folder / "printed"

    with printed.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "app.py"], cwd=folder, env=environment(), stdout=out
        )
    until(lambda: len(sent(printed)) >= LINES_BEFORE_KILL, RUN_S_MAX)
    process.send_signal(signal.SIGKILL)
    process.wait(RUN_S_MAX)
    before = len(sent(printed))
    again = subprocess.run(
        [sys.executable, "app.py"],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )

    assert LINES_BEFORE_KILL <= before < 50, "it was not killed in the middle"
    assert again.returncode == 0, again.stderr
    assert "Traceback" not in again.stderr
    assert {*sent(printed), *again.stdout.splitlines()} == {
        f"sent 'order {number}' to a@example.org" for number in range(50)
    }
    assert await states(store_url) == ["DONE"] * 50


async def test_the_first_example_can_be_started_twice_and_adds_nothing_twice(
    folder: Path, store_url: str
):
    await migrate(store_url)

    for printed_lines in (50, 0):
        done = subprocess.run(
            [sys.executable, "app.py"],
            cwd=folder,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=RUN_S_MAX,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert len(done.stdout.splitlines()) == printed_lines

    assert await states(store_url) == ["DONE"] * 50


def sent(printed: Path) -> list[str]:
    return [line for line in printed.read_text().splitlines(keepends=False) if line]


async def states(url: str) -> list[str]:
    app = fresh(url)
    async with app:
        tasks = await (await app.store()).find(Filter(limit=1_000))
    return [task.state.name for task in tasks]
