"""`holdfast worker` in processes of its own: signals, several nodes, log lines."""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from e2e.place import PATIENCE_S, Place
from holdfast.testing.processes import until

CANARY = "can4ry-pa55word"

PROGRAM = """
import asyncio
from pathlib import Path
from holdfast import Holdfast

app = Holdfast()

@app.task
async def note(name: str) -> None:
    Path(name).touch()

@app.task
async def loop(name: str) -> None:
    Path(name).write_text(type(asyncio.get_running_loop()).__module__)

@app.task
async def hold(name: str) -> None:
    Path(name).touch()
    while not Path(name + ".go").exists():
        await asyncio.sleep(0.01)

@app.task(deadline=0.2)
async def overstay(name: str) -> None:
    await hold(name)

@app.task
async def fail(secret: str) -> None:
    raise ValueError("not today")
"""


@pytest.fixture
def place(tmp_path: Path, store_url: str) -> Iterator[Place]:
    folder = tmp_path / "program"
    folder.mkdir()
    place = Place(folder, store_url, PROGRAM)
    yield place
    place.close()


@pytest.mark.req("TASK-86")
def test_a_stopping_node_finishes_what_runs_and_leaves_the_rest_to_others(place: Place):
    first = place.start()
    running = place.enqueue("hold", "held")
    place.has("held")

    first.process.send_signal(signal.SIGTERM)
    first.has_said("stopping")
    later = place.enqueue("note", "later")
    assert place.state(running) == "PROCESSING"
    (place.folder / "held.go").touch()

    assert first.process.wait(PATIENCE_S) == 0
    assert (place.state(running), place.state(later)) == ("DONE", "SUBMITTED")
    assert not (place.folder / "later").exists()
    second = place.start()
    place.has("later")
    second.process.send_signal(signal.SIGINT)
    assert second.process.wait(PATIENCE_S) == 0
    assert place.state(later) == "DONE"


@pytest.mark.parametrize("loop, module", [("auto", "uvloop"), ("asyncio", "asyncio.unix_events")])
def test_a_node_runs_on_the_loop_that_is_asked_for(place: Place, loop: str, module: str):
    place.start(HOLDFAST_NODE__LOOP=loop)

    ran = place.enqueue("loop", "module")

    until(lambda: place.state(ran) == "DONE", PATIENCE_S)
    assert (place.folder / "module").read_text() == module


def test_a_second_signal_ends_the_node_at_once_and_the_task_goes_on_elsewhere(place: Place):
    first = place.start(HOLDFAST_NODE__LEASE="1s")
    running = place.enqueue("hold", "held")
    place.has("held")

    first.process.send_signal(signal.SIGTERM)
    first.has_said("stopping")
    first.process.send_signal(signal.SIGTERM)

    assert first.process.wait(PATIENCE_S) == 130
    assert place.state(running) == "PROCESSING"
    (place.folder / "held.go").touch()
    place.start(HOLDFAST_NODE__LEASE="1s")
    until(lambda: place.state(running) == "DONE", PATIENCE_S)


def test_a_failing_handler_is_a_warning_and_no_payload_is_logged(place: Place):
    worker = place.start("--verbose")
    id = place.enqueue("fail", CANARY)
    worker.has_said("PARKED")

    (warning,) = [line for line in worker.lines if line["level"] == "WARNING"]
    assert warning["text"] == f"task {id} failed: fail, attempt 1: ValueError: not today"
    assert (warning["task"], warning["kind"], warning["attempt"]) == (int(id), "fail", 1)
    assert {line["logger"] for line in worker.lines} == {"holdfast"}
    assert "ERROR" not in {line["level"] for line in worker.lines}
    assert CANARY not in worker.said


def test_all_tasks_of_a_kind_in_error_are_resumed_together(place: Place):
    worker = place.start("--verbose")
    ids = {place.enqueue("fail", "x") for _ in range(2)}
    done = place.enqueue("note", "noted")
    worker.has_said("PARKED", times=2)
    place.has("noted")
    worker.process.send_signal(signal.SIGTERM)
    assert worker.process.wait(PATIENCE_S) == 0

    listed = {row["id"] for row in place.rows("task", "list", "--state", "error")}
    counted = place.run("task", "resume", "--kind", "fail", "--all", "--dry-run")
    resumed = {row["id"] for row in place.rows("task", "resume", "--kind", "fail", "--all")}

    assert listed == resumed == ids
    assert counted == ""
    assert {place.state(id) for id in ids} == {"SUBMITTED"}
    assert place.state(done) == "DONE"


def test_tasks_past_their_deadline_are_listed_as_stuck(place: Place):
    place.start("--verbose")
    stuck = place.enqueue("overstay", "late")
    fine = place.enqueue("hold", "fine")
    place.has("late")
    place.has("fine")

    def seen() -> list[str]:
        return [row["id"] for row in place.rows("task", "list", "--stuck")]

    until(lambda: seen() == [stuck], PATIENCE_S)
    assert place.state(fine) == "PROCESSING"


@pytest.mark.store("postgres")
def test_a_node_that_dies_is_started_again_and_no_process_shows_the_password(
    tmp_path: Path, postgres_url: str
):
    # The private server trusts whoever comes from this machine, with any password.
    place = Place(tmp_path, with_password(postgres_url), PROGRAM)
    try:
        fleet = place.start("--processes", "2")
        fleet.has_said("serves default", times=2)
        before = fleet.children
        shown = " ".join(
            " ".join(one.cmdline()) for one in (psutil.Process(fleet.process.pid), *before)
        )
        before[0].kill()
        fleet.has_said("serves default", times=3)

        assert len(before) == 2
        assert CANARY not in shown + fleet.said
        assert "ended with SIGKILL; it starts again in" in fleet.said
        assert len(fleet.children) == 2
        place.enqueue("note", "noted")
        place.has("noted")
        fleet.process.send_signal(signal.SIGTERM)
        assert fleet.process.wait(PATIENCE_S) == 0
        assert fleet.said.count("stopped") == 2
    finally:
        place.close()


@pytest.mark.store("postgres")
def test_nodes_stop_when_their_supervisor_is_killed(tmp_path: Path, postgres_url: str):
    place = Place(tmp_path, postgres_url, PROGRAM)
    try:
        fleet = place.start("--processes", "2")
        fleet.has_said("serves default", times=2)
        nodes = fleet.children

        fleet.process.kill()

        _, alive = psutil.wait_procs(nodes, timeout=PATIENCE_S)
        assert not alive
        assert fleet.said.count("stopped") == 2
    finally:
        place.close()


@pytest.mark.store("sqlite")
def test_several_nodes_on_one_old_sqlite_file_are_warned_about(tmp_path: Path):
    place = Place(tmp_path, f"sqlite:///{tmp_path / 'app.db'}", PROGRAM)
    try:
        fleet = place.start("--processes", "2")
        fleet.has_said("serves default", times=2)
        fleet.process.send_signal(signal.SIGTERM)

        assert fleet.process.wait(PATIENCE_S) == 0
        is_old = sqlite3.sqlite_version_info < (3, 51, 3)
        assert ("several nodes on one file need SQLite 3.51.3 or later" in fleet.said) == is_old
    finally:
        place.close()


def test_settings_that_cannot_work_are_said_once_and_not_tried_again(place: Place):
    fleet = place.start("--processes", "2", "--queue", "defualt")

    assert fleet.process.wait(PATIENCE_S) == 3
    assert fleet.said.count("unknown queue 'defualt'; did you mean 'default'?") == 1


def with_password(url: str) -> str:
    scheme, _, rest = url.partition("://")
    user, _, host = rest.rpartition("@")
    return f"{scheme}://{user.partition(':')[0] or 'postgres'}:{CANARY}@{host}"
