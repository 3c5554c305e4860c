"""Plays one page in this folder: `python play.py PAGE STORE URL`.

A page has a process of its own, as a reader would have: what it opens, changes or configures ends
with it.  The first block that does not do what the page says ends the play with its line.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import io
import os
import re
import shlex
import signal
import subprocess
import sys
import traceback
from inspect import iscoroutine
from pathlib import Path
from types import ModuleType

from pages import PLAYED, POSTGRES, SQLITE, Block, page

from holdfast import Holdfast

HOLDFAST = [sys.executable, "-m", "holdfast.cli"]
PROGRAMS = {"holdfast": HOLDFAST, "python": [sys.executable]}
NOT_PLAYED = ("pip", "make", "kill")
COMMAND_S_MAX = 60.0


class NotTrue(Exception):
    """The page says something that is not so."""


class Player:
    """Plays the blocks of a page, one after the other, in one namespace and one event loop."""

    def __init__(self, store: str, url: str) -> None:
        self._store = store
        self._url = url
        self._running: list[subprocess.Popen[bytes]] = []
        # A module, because libraries look up the module that a class says it is from.
        module = sys.modules["__page__"] = ModuleType("__page__")
        self._names = vars(module)
        self._names.update(URL=url, stop=self.stop)  # for hidden blocks

    async def play(self, block: Block) -> None:
        code = block.code
        if self._store == "sqlite" and POSTGRES in code:
            raise NotTrue("names PostgreSQL, but is not marked `only: postgres`")
        if self._store != "sqlite":
            code = code.replace(SQLITE, self._url).replace(POSTGRES, self._url.partition(":")[2])
        if name := block.says.get("file"):
            await asyncio.to_thread(Path(name).write_text, code, encoding="utf-8")
        elif block.language == "sh":
            printed = await asyncio.to_thread(self._commands, code, block)
            _compare(printed, block.prints)
        else:
            _compare(await self._python(code, block), block.prints)

    async def _python(self, code: str, block: Block) -> str:
        # The right line numbers, for whoever reads the traceback.
        source = "\n" * block.line + code
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        compiled = compile(source, "page", "exec", flags=flags, dont_inherit=True)
        printed = io.StringIO()
        expected = block.says.get("raises")
        with contextlib.redirect_stdout(printed):
            try:
                found = eval(compiled, self._names)
                if iscoroutine(found):
                    await found
            except Exception as error:
                if type(error).__name__ != expected:
                    raise
                printed.write(f"{expected}: {error}\n")
            else:
                if expected:
                    raise NotTrue(f"{expected} was not raised")
        return printed.getvalue()

    def _commands(self, code: str, block: Block) -> str:
        printed = ""
        for line in code.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if not words or words[0] in NOT_PLAYED:
                continue
            if words[0] == "export":
                os.environ.update(word.split("=", 1) for word in words[1:])
                continue
            if words[0] not in PROGRAMS:
                raise NotTrue(f"{words[0]!r} is no program that a page may run")
            command = [*PROGRAMS[words[0]], *words[1:]]
            if "background" in block.says:
                self._running.append(subprocess.Popen(command, stderr=subprocess.DEVNULL))
            else:
                printed += self._command(command, int(block.says.get("exit", "0")))
        return printed

    @staticmethod
    def _command(command: list[str], exit_code: int) -> str:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_S_MAX,
            check=False,
        )
        if done.returncode != exit_code:
            raise NotTrue(f"ended with {done.returncode}, not {exit_code}:\n{done.stdout}")
        return done.stdout

    def stop(self) -> None:
        """End the commands in the background, as Ctrl-C does."""
        running, self._running = self._running, []
        for process in running:
            process.send_signal(signal.SIGINT)
        for process in running:
            process.wait(COMMAND_S_MAX)

    async def close(self) -> None:
        self.stop()
        for app in [one for one in self._names.values() if isinstance(one, Holdfast)]:
            await app.close()
            await asyncio.to_thread(app.close_sync)


def _compare(printed: str, expected: str | None) -> None:
    """Each line of the page occurs in what was printed, spaces aside."""
    plain = [" ".join(line.split()) for line in printed.splitlines()]
    for line in (expected or "").splitlines():
        parts = [re.escape(part) for part in " ".join(line.split()).split("…")]
        if line.strip() and not any(re.fullmatch(".*".join(parts), one) for one in plain):
            raise NotTrue(f"{line!r} was not printed, but\n{printed}")


def main(name: str, store: str, url: str) -> int:
    os.environ["HOLDFAST_URL"] = url
    sys.path.insert(0, os.getcwd())
    if store != "sqlite":
        subprocess.run([*HOLDFAST, "db", "migrate"], check=True)
    return asyncio.run(played(name, store, url))


async def played(name: str, store: str, url: str) -> int:
    """0 when every block of the page is true on this store."""
    player = Player(store, url)
    try:
        for block in page(name).blocks:
            if block.language not in PLAYED and "file" not in block.says:
                continue
            if not block.is_for(store) or "shown" in block.says:
                continue
            try:
                await player.play(block)
            except Exception:
                sys.stderr.write(f"{name}:{block.line}: this block is not true\n\n{block.code}\n")
                traceback.print_exc()
                return 1
    finally:
        await player.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
