"""`holdfast dev`: one command while you write handlers; it reloads when a file changes.

The node is a child process, so a reload is a new process: nothing of the old code stays.  Before a
reload it hands back what still runs after half a second, and its successor goes on with it.  When
this process dies, the child's stdin ends and it stops by itself.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.problems import note
from holdfast.config import NO_URL, load_config
from holdfast.errors import ConfigurationError

CHILD = "dev-node"  # the command of the child; not for people
FOLDER = ".holdfast"
DEV_URL = f"sqlite:///{FOLDER}/dev.db"
LOOK_S = 0.3
DRAIN = "500ms"  # what runs at a reload may still finish
SLOW_S = 15.0  # a child that has not ended by then is killed; its tasks are resumed
SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages", "venv"})

Stamps = dict[Path, int]


def dev(
    app: Annotated[
        str | None,
        typer.Argument(metavar="[APP]", help="Else app.py, or the only file with an app."),
    ] = None,
) -> None:
    """Run the app while you write it: reloads on change, shows what happens.  Ctrl-C ends it.

    Without an address in the configuration its tasks are kept in .holdfast/dev.db.
    """
    found = app or find_module(Path.cwd())
    note(f"{found} reloads when a .py file under {Path.cwd()} changes; Ctrl-C ends it")
    developer = Developer(found, Path.cwd(), environment())
    raise typer.Exit(asyncio.run(developer.run()))


def find_module(folder: Path) -> str:
    """The app of this folder when none was named; says which one it took."""
    if (folder / "app.py").is_file():
        note("no APP was named: taking app:app from app.py")
        return "app:app"
    files = [path for path in sorted(folder.glob("*.py")) if _makes_an_app(path)]
    if len(files) == 1:
        note(f"no APP was named: taking {files[0].stem}:app from {files[0].name}")
        return f"{files[0].stem}:app"
    names = ", ".join(f"{path.stem}:app" for path in files)
    hint = f"name one of {names}" if names else "there is no app.py, and no file makes a Holdfast()"
    raise ConfigurationError(f"there is no app to run in {folder}: {hint}")


def environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """What the child gets: an address where none is configured, and a short drain."""
    found = dict(os.environ if environ is None else environ)
    found.setdefault("HOLDFAST_NODE__DRAIN", DRAIN)
    try:
        load_config({}, environ=found)
    except ConfigurationError as error:
        if str(error) != NO_URL:
            raise
        found["HOLDFAST_URL"] = DEV_URL
    return found


class Developer:
    """Keeps one child running the newest code."""

    def __init__(self, app: str, folder: Path, environ: Mapping[str, str]) -> None:
        self._command = [sys.executable, "-m", "holdfast.cli", CHILD, app]
        self._folder = folder
        self._environ = dict(environ)
        self._stop = asyncio.Event()
        self._stamps: Stamps = {}

    async def run(self) -> int:
        """Until SIGTERM or Ctrl-C; answers the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        self._stamps = stamps(self._folder)
        options = ["--greets"]
        while not self._stop.is_set():
            child = await asyncio.create_subprocess_exec(
                *self._command, *options, stdin=PIPE, env=self._environ, start_new_session=True
            )
            options = []
            try:
                await self._changed_or_stopped(child)
            finally:
                await _end(child)
        return 0

    async def _changed_or_stopped(self, child: Process) -> None:
        has_ended = False
        while not self._stop.is_set():
            if not has_ended and child.returncode is not None:
                has_ended = True
                note(f"the node ended with exit code {child.returncode}; change a file to go on")
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), LOOK_S)
            now = stamps(self._folder)
            if now != self._stamps:
                changed = {path for path, _ in now.items() ^ self._stamps.items()}
                self._stamps = now
                names = ", ".join(sorted(str(path.relative_to(self._folder)) for path in changed))
                note(f"changed: {names}; reloading")
                return


async def _end(child: Process) -> None:
    """Gracefully: what runs is handed back, so that the next process goes on with it."""
    if child.returncode is None:
        with suppress(ProcessLookupError):
            child.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(child.wait(), SLOW_S)
        except TimeoutError:
            with suppress(ProcessLookupError):
                child.kill()
            await child.wait()
    if child.stdin is not None:
        child.stdin.close()


def stamps(folder: Path) -> Stamps:
    """When each file of Python under the folder was changed last."""
    found: Stamps = {}
    for path in _files(folder):
        with suppress(OSError):  # it may be gone by now
            found[path] = path.stat().st_mtime_ns
    return found


def _files(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in SKIPPED and name[0] != "."]
        yield from (Path(parent, name) for name in names if name.endswith(".py"))


def _makes_an_app(path: Path) -> bool:
    return "Holdfast(" in path.read_text(encoding="utf-8", errors="replace")
