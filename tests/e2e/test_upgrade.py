"""A rolling upgrade: a worker of the schema before and one of this code, on the new tables."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from holdfast import Holdfast, State
from holdfast.testing.apps import migrate
from holdfast.testing.processes import ended, until

ROOT = Path(__file__).resolve().parents[2]

APP = """
import os
from holdfast import Holdfast, Retry, current_task

app = Holdfast()


@app.task(queue="mail", retry=Retry(attempts=3, delay=0.2))
async def send(number: int) -> int:
    if number % 7 == 0 and current_task().attempt == 1:
        raise ConnectionError("not yet")
    return os.getpid()
"""


def environ(**known: str) -> dict[str, str]:
    """Ours, without settings of ours that an older Holdfast does not know."""
    return {n: v for n, v in os.environ.items() if not n.startswith("HOLDFAST_")} | known


def git(*words: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def migrations(commit: str) -> set[str]:
    """The migrations of a commit, by the hashes of their texts."""
    folders = [f"src/holdfast/stores/{store}/migrations" for store in ("sqlite", "postgres")]
    listed = git("ls-tree", "-r", commit, "--", *folders).splitlines()
    return {line.split()[2] for line in listed}


def commit_before() -> str:
    """The newest commit whose tables can become those of this one; "" without history."""
    if given := os.environ.get("HOLDFAST_TEST_OLDER"):
        return given
    now = migrations("HEAD")
    line = git("rev-list", "--first-parent", "--max-count=500", "HEAD^").splitlines()
    found = (commit for commit in line if set() < migrations(commit) < now)
    return next(found, line[0] if line else "")


@pytest.fixture
def older(tmp_path: Path) -> Path:
    """The source tree of the commit before."""
    commit = commit_before()
    if not commit:
        return ROOT / "src"  # without history, two workers of this code must do
    folder = tmp_path / "older"
    packed = tmp_path / "older.tar"
    git("archive", "--output", str(packed), commit, "src")
    with tarfile.open(packed) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"


def worker(folder: Path, source: Path, url: str, log: Path) -> subprocess.Popen[bytes]:
    path = os.pathsep.join([str(source), str(folder)])
    with log.open("wb") as errors:
        return subprocess.Popen(
            [sys.executable, "-m", "holdfast.cli", "worker", "mailing", "--quiet"],
            cwd=folder,
            env=environ(HOLDFAST_URL=url, PYTHONPATH=path),
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )


def says(log: Path, words: str) -> bool:
    return words in log.read_text(errors="replace")


@pytest.mark.whole
async def test_workers_of_both_versions_run_side_by_side_on_the_new_tables(
    bare_store_url, tmp_path, older
):
    """The older one is started first, the tables are migrated under it, and a new one joins."""
    (tmp_path / "mailing.py").write_text(APP)
    logs = {name: tmp_path / f"{name}.log" for name in ("older", "newer")}
    make = [sys.executable, "-m", "holdfast.cli", "db", "migrate"]
    subprocess.run(  # noqa: ASYNC221
        make,
        env=environ(HOLDFAST_URL=bare_store_url, PYTHONPATH=str(older)),
        check=True,
        capture_output=True,
    )
    first = worker(tmp_path, older, bare_store_url, logs["older"])
    second: subprocess.Popen[bytes] | None = None
    try:
        until(lambda: says(logs["older"], "serves mail"), 60, lambda: logs["older"].read_text())
        await migrate(bare_store_url)
        second = worker(tmp_path, ROOT / "src", bare_store_url, logs["newer"])
        until(lambda: says(logs["newer"], "serves mail"), 60, lambda: logs["newer"].read_text())

        app = Holdfast(bare_store_url)

        @app.task(queue="mail")
        async def send(number: int) -> int: ...

        async with app:
            handles = []
            for number in range(200):
                handles.append(await send.options(delay=0.01 * (number % 5)).enqueue(number))
                await asyncio.sleep(0.01)
            results = [await handle.result(timeout=60) for handle in handles]
            assert {(await handle.task()).state for handle in handles} == {State.DONE}
    finally:
        for process in (first, second):
            if process is not None:
                ended(process, (15, 9), 30)

    assert set(results) == {first.pid, second.pid}, "both have run tasks"
    for name, log in logs.items():
        wrong = [line for line in map(json.loads, log.read_text().splitlines()) if is_error(line)]
        assert wrong == [], name


def is_error(line: dict[str, str]) -> bool:
    """Errors of Holdfast's own; a handler's failed attempt is the user's."""
    return line.get("level") in ("ERROR", "CRITICAL") or line.get("happened") in (
        "StoreFailed",
        "BugFound",
    )
