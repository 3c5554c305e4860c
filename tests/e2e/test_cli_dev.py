"""`holdfast dev`, and what other commands show on a terminal; the scripts of shells."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from e2e.place import PACKAGE, Place
from e2e.terminal import PATIENCE_S, Terminal
from holdfast.store import Filter, Store
from holdfast.task import State

PROGRAM = """
import asyncio
from pathlib import Path
from holdfast import Holdfast

app = Holdfast()

@app.task
async def hold(name: str) -> None:
    Path(name).touch()
    while not Path(name + ".go").exists():
        await asyncio.sleep(0.01)

@app.task
async def note(name: str, count: int = 1) -> None:
    Path(name).touch()
"""

Open = Callable[..., Terminal]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path, f"sqlite:///{tmp_path / 'app.db'}", PROGRAM)
    yield place
    place.close()


@pytest.fixture
def terminal(place: Place) -> Iterator[Open]:
    opened: list[Terminal] = []

    def open_(*arguments: str, **environ: str) -> Terminal:
        opened.append(Terminal(place.folder, place.environment | environ, *arguments))
        return opened[-1]

    yield open_
    for one in opened:
        one.close()


def test_dev_reloads_on_a_change_hands_back_what_runs_and_ends_cleanly(
    place: Place, terminal: Open
):
    place.environment.pop("HOLDFAST_URL")
    dev = terminal("dev")
    dev.has_shown("serves default")
    greeting = dev.shown
    url = "sqlite:///.holdfast/dev.db"
    place.environment["HOLDFAST_URL"] = url
    id = place.enqueue("hold", "held")
    place.has("held")
    child = psutil.Process(dev.process.pid).children()[0]
    (place.folder / "held").unlink()

    with (place.folder / "orders.py").open("a", encoding="utf-8") as file:
        file.write("\n# changed\n")
    dev.has_shown("changed: orders.py; reloading")
    place.has("held")  # the new code runs the same task again

    assert not child.is_running()
    assert place.state(id) == "PROCESSING"
    assert "no APP was named: taking orders:app from orders.py" in greeting
    assert f"tasks are kept in {url}" in greeting
    assert f"HOLDFAST_URL={url} holdfast task enqueue orders:app hold" in greeting
    assert dev.shown.count("tasks are kept in") == 1
    assert f"task {id} REPEATED" in dev.shown, "it was handed back, not left to its lease"
    (place.folder / "held.go").touch()
    dev.has_shown(f"task {id} SUCCEEDED")
    children = psutil.Process(dev.process.pid).children()
    assert dev.ends(signal.SIGINT) == 0
    _, alive = psutil.wait_procs(children, timeout=PATIENCE_S)
    assert not alive
    assert (place.folder / ".holdfast" / ".gitignore").read_text() == "*\n"


def test_dev_waits_for_a_change_when_the_program_is_broken(place: Place, terminal: Open):
    good = (place.folder / "orders.py").read_text(encoding="utf-8")
    (place.folder / "orders.py").write_text(good + "\nraise ValueError(17)\n", encoding="utf-8")
    dev = terminal("dev", "orders")
    dev.has_shown("error HF1108: orders cannot be imported: ValueError: 17")
    dev.has_shown("the node ended with exit code 2; change a file to go on")

    (place.folder / "orders.py").write_text(good, encoding="utf-8")
    dev.has_shown("serves default")
    place.enqueue("note", "noted")
    place.has("noted")

    assert dev.ends(signal.SIGTERM) == 0
    assert not (place.folder / ".holdfast").exists(), "an address was configured"


def test_dev_says_when_there_is_no_app_to_run(place: Place, tmp_path: Path):
    (place.folder / "orders.py").unlink()
    nothing = place.command("dev")
    for name in ("a", "b"):
        (place.folder / f"{name}.py").write_text(PROGRAM, encoding="utf-8")
    several = place.command("dev")

    assert (nothing.returncode, several.returncode) == (2, 2)
    assert "there is no app.py, and no file makes a Holdfast()" in nothing.stderr
    assert "name one of a:app, b:app" in several.stderr


def test_top_is_a_live_view_on_a_terminal_until_ctrl_c(place: Place, terminal: Open):
    place.start("--quiet")
    top = terminal("top", "--every", "200ms")
    top.has_shown("nothing to look at")
    place.enqueue("hold", "held")
    top.has_shown("task 1 on")
    top.has_shown("/s")

    assert top.ends(signal.SIGINT) == 0
    assert "\x1b[?1049l" in top.raw, "the screen is given back as it was"
    (place.folder / "held.go").touch()


def test_a_terminal_shows_how_far_a_bulk_change_and_a_drain_have_come(place: Place, terminal: Open):
    place.enqueue("note", "noted")

    async def park(store: Store) -> None:
        for task in await store.find(Filter(states=[State.SUBMITTED])):
            await store.park({task.id: task.version}, "broken")

    place.on_store(park)
    resume = terminal("error", "resume", "--all", "--yes")
    assert resume.ends() == 0
    drain = terminal("queue", "drain", "default", NO_COLOR="1")
    drain.has_shown("draining default")
    place.start("--quiet")

    assert drain.ends() == 0
    assert "queue default is drained" in drain.shown
    assert "resumed 1 task" in resume.shown and "1/1" in resume.shown
    assert "\x1b[31m" not in drain.raw, "no red without colour"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_commands_and_options(place: Place, shell: str):
    script = place.run("completion", shell)
    assert "_HOLDFAST_COMPLETE" in script
    if shell != "bash" or shutil.which("bash") is None:
        return
    program = place.folder / "holdfast"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m holdfast.cli "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    asked = (
        'eval "$(holdfast completion bash)"; COMP_WORDS=(holdfast {}); COMP_CWORD={}; '
        '_holdfast_completion holdfast; echo "${{COMPREPLY[@]}}"'
    )

    def completed(words: str) -> list[str]:
        done = subprocess.run(
            ["bash", "-c", asked.format(words, len(words.split()))],
            env={
                "PATH": f"{place.folder}:{os.environ['PATH']}",
                "PYTHONPATH": str(PACKAGE),
                "HOME": str(place.folder),
            },
            cwd=place.folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return done.stdout.split()

    assert completed("qu") == ["queue"]
    assert completed("error give") == ["give-up"]
    assert "--dry-run" in completed("error resume --d")


def test_a_mistyped_command_is_answered_with_the_nearest_one(place: Place):
    done = place.command("queue", "lsit")
    node = place.command("node", "drian", "x")

    assert (done.returncode, node.returncode) == (2, 2)
    assert "'list'" in done.stderr
    assert "'drain'" in node.stderr
    assert json.loads(place.run("queue", "list", "--json"))["items"] == []
