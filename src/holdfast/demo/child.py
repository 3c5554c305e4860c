"""The demo's node: `holdfast worker` in a process of its own, which can really be killed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from pathlib import Path

import holdfast

LEASE = "2s"
SLOTS = 16
STOP_S = 10.0


class NodeProcess:
    """One child.  It stops by itself when this process dies: its stdin ends."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, folder: Path, url: str) -> NodeProcess:
        with (folder / "node.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "holdfast.cli", "worker", "holdfast.demo.node"),
                *("--quiet", "--until-stdin-ends"),
                cwd=folder,
                env=_environment(url),
                stdin=PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return cls(process)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.returncode is None

    async def kill(self) -> int:
        """kill -9: nothing in the child gets a chance to tidy up."""
        if self.is_alive:
            os.kill(self._process.pid, signal.SIGKILL)
        return await self._gone()

    async def stop(self) -> int:
        """Gracefully; by force when that takes too long."""
        with suppress(ProcessLookupError):
            self._process.terminate()
        try:
            async with asyncio.timeout(STOP_S):
                return await self._gone()
        except TimeoutError:
            return await self.kill()

    async def _gone(self) -> int:
        code = await self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        return code


def _environment(url: str) -> dict[str, str]:
    """Ours without the user's settings of Holdfast: the demo is the same everywhere."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    package = str(Path(holdfast.__file__).parents[1])
    path = os.pathsep.join(filter(None, (package, kept.get("PYTHONPATH"))))
    return kept | {
        "PYTHONPATH": path,
        "HOLDFAST_URL": url,
        "HOLDFAST_NODE__LEASE": LEASE,
        "HOLDFAST_NODE__SLOTS__ASYNC": str(SLOTS),
    }
