"""A node and three callers on one SQLite file, killed at any moment: nothing answered is lost.

This module is also the program that the processes run: `python test_sqlite_kill.py ROLE FILE LOG`.
What a process was promised (a task enqueued, an outcome settled) it notes in its log after the
answer; a process killed between answer and note promises nothing to anybody.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.clock import SystemClock
from holdfast.ids import new_node_id
from holdfast.store import START, Cursor
from holdfast.stores.sqlite import SQLiteStore
from holdfast.stores.sqlite.statements import run_script
from holdfast.task import Event, NewTask, Outcome, State
from holdfast.testing.contracts.builders import eventually

SECONDS = float(os.environ.get("HOLDFAST_KILL_S") or (60 if os.environ.get("HOLDFAST_LONG") else 8))
LIFE_S_MAX = 1.0  # a process lives at most so long once it has noted something
ROLES = ("node", "caller", "caller", "caller")


def a_task(name: str) -> NewTask:
    return NewTask(queue="q", partition=0, kind="k", payload=name.encode())


async def node(path: str, log: int) -> None:
    rng = random.Random(os.getpid())
    store = SQLiteStore(path, clock=SystemClock(), rng=rng)
    await store.open()
    me = new_node_id(rng)
    while True:
        answers = await store.enqueue([a_task(f"node-{number}") for number in range(20)])
        note(log, "enqueued", [answer.id for answer in answers])
        found = await store.arrivals("q", [Cursor(0, START)], limit=50, exact=True)
        grab = await store.grab(found.triggers, node=me, deadlines_s={}, epochs={})
        note(log, "grabbed", [f"{task.id}:{task.version}" for task in grab.tasks])
        outcomes = [Outcome(task.id, task.version, Event.SUCCEEDED) for task in grab.tasks]
        settled = await store.settle(outcomes, node=me)
        pairs = zip(outcomes, settled, strict=True)
        note(log, "settled", [outcome.id for outcome, is_ours in pairs if is_ours])


def caller(path: str, log: int) -> None:
    store = SQLiteStore(path, clock=SystemClock(), rng=random.Random(os.getpid()))
    pause = threading.Event()
    with closing(sqlite3.connect(path, timeout=60)) as db:
        db.execute("PRAGMA wal_autocheckpoint = 0")
        db.execute("PRAGMA synchronous = FULL")
        while True:
            db.execute("BEGIN IMMEDIATE")
            answers = run_script(db, store.enqueueing([a_task("caller"), a_task("caller")]))
            db.execute("INSERT INTO business (task) VALUES (?)", (answers[0].id,))
            db.commit()
            note(log, "enqueued", [answer.id for answer in answers])
            pause.wait(0.002)  # what a caller does between two transactions


def note(log: int, what: str, ids: list[object]) -> None:
    os.write(log, f"{what} {' '.join(map(str, ids))}\n".encode())


class Pack:
    """The processes; whoever is killed is started again."""

    def __init__(self, path: Path, folder: Path) -> None:
        self._path = path
        self._folder = folder
        self._number = 0
        self.processes = [self._started(role) for role in ROLES]

    def _started(self, role: str) -> tuple[subprocess.Popen[bytes], Path]:
        self._number += 1
        log = self._folder / f"{self._number}-{role}.log"
        log.touch()
        command = [sys.executable, __file__, role, str(self._path), str(log)]
        return subprocess.Popen(command, stderr=subprocess.PIPE), log

    def kill(self, index: int) -> None:
        process, _ = self.processes[index]
        process.send_signal(signal.SIGKILL)
        _, complaint = process.communicate()
        assert process.returncode == -signal.SIGKILL, complaint.decode()

    def kill_and_start(self, index: int) -> None:
        self.kill(index)
        self.processes[index] = self._started(ROLES[index])

    async def is_busy(self, index: int) -> bool:
        return self.processes[index][1].stat().st_size > 0


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    path = tmp_path / "app.db"
    store = SQLiteStore(path, clock=SystemClock(), rng=random.Random(0))
    await store.open()
    await store.close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE business (task INTEGER)")
    return path


async def test_nothing_answered_is_lost_when_processes_are_killed_at_any_moment(
    path: Path, tmp_path: Path
) -> None:
    rng, clock = random.Random(7), SystemClock()
    logs = tmp_path / "logs"
    logs.mkdir()
    pack, kills = Pack(path, logs), 0
    ends_at = clock.seconds() + SECONDS
    try:
        while clock.seconds() < ends_at:
            index = rng.randrange(len(ROLES))
            if rng.random() < 0.7:  # else it may die while it starts
                await eventually(lambda index=index: pack.is_busy(index))
            # When a process dies must not depend on what it does: this wait is the fault itself.
            await asyncio.sleep(rng.uniform(0, LIFE_S_MAX / len(ROLES)))
            pack.kill_and_start(index)
            kills += 1
    finally:
        for index in range(len(ROLES)):
            pack.kill(index)

    assert kills >= SECONDS / 2
    check(path, list(logs.iterdir()))


def check(path: Path, logs: list[Path]) -> None:
    """The file is whole, and holds everything that was answered."""
    noted: dict[str, list[str]] = {"enqueued": [], "grabbed": [], "settled": []}
    for what, ids in notes(logs):
        noted[what] += ids
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        hot = {str(id) for (id,) in db.execute("SELECT id FROM holdfast_task")}
        ended = dict(db.execute("SELECT id, state FROM holdfast_archive"))
        half = "SELECT count(*) FROM business WHERE task NOT IN (SELECT id FROM {})"
        both = "SELECT id FROM holdfast_task UNION SELECT id FROM holdfast_archive"
        assert db.execute(half.format(f"({both})")).fetchone() == (0,)
    archived = {str(id) for id in ended}

    assert len(noted["enqueued"]) == len(set(noted["enqueued"])) > 100
    assert set(noted["enqueued"]) <= hot | archived
    assert not hot & archived
    assert set(noted["settled"]) <= archived
    assert set(ended.values()) == {State.DONE}
    assert len(noted["grabbed"]) == len(set(noted["grabbed"])) > 100


def notes(logs: list[Path]) -> Iterator[tuple[str, list[str]]]:
    for log in logs:
        for line in log.read_text().splitlines():
            what, *ids = line.split(" ")
            yield what, [id for id in ids if id]


if __name__ == "__main__":
    role, file, log_path = sys.argv[1:]
    log = os.open(log_path, os.O_WRONLY | os.O_APPEND)
    if role == "node":
        asyncio.run(node(file, log))
    else:
        caller(file, log)
