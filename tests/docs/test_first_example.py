"""The first example of the README, as a newcomer would try it: pasted, started, killed, started."""

from __future__ import annotations

import asyncio
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


def started(folder: Path) -> subprocess.CompletedProcess[str]:
    """One start of the example, to its end."""
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
    assert "Traceback" not in done.stderr
    return done


def killed_after(lines: int, folder: Path) -> list[str]:
    """Start the example, kill it after so many lines, and answer what it has printed."""
    printed = folder / "printed"
    with printed.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "app.py"], cwd=folder, env=environment(), stdout=out
        )
    try:
        until(lambda: len(printed.read_text().splitlines()) >= lines, RUN_S_MAX)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(RUN_S_MAX)
    return printed.read_text().splitlines()


def states(url: str) -> list[str]:
    async def found() -> list[str]:
        app = fresh(url)
        async with app:
            tasks = await (await app.store()).find(Filter(limit=1_000))
        return [task.state.name for task in tasks]

    return asyncio.run(found())


def test_the_first_example_survives_kill_9_and_every_task_has_run(folder: Path, store_url: str):
    asyncio.run(migrate(store_url))

    before = killed_after(LINES_BEFORE_KILL, folder)
    after = started(folder).stdout.splitlines()

    assert LINES_BEFORE_KILL <= len(before) < 50, "it was not killed in the middle"
    assert {*before, *after} == {f"sent 'order {number}' to a@example.org" for number in range(50)}
    assert states(store_url) == ["DONE"] * 50


def test_the_first_example_can_be_started_twice_and_adds_nothing_twice(
    folder: Path, store_url: str
):
    asyncio.run(migrate(store_url))

    printed = [len(started(folder).stdout.splitlines()) for _ in range(2)]

    assert printed == [50, 0]
    assert states(store_url) == ["DONE"] * 50
