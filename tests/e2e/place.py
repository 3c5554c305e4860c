"""A folder with a program, a store, and commands that run on it in processes of their own."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import psutil

import holdfast
from holdfast.address import Address
from holdfast.clock import SystemClock
from holdfast.node.compose import make_store
from holdfast.store import Store
from holdfast.testing.processes import until

PACKAGE = Path(holdfast.__file__).parents[1]
PATIENCE_S = 30.0

T = TypeVar("T")


class Worker:
    """A worker that was started, and what it has said so far."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self._log = log

    @property
    def said(self) -> str:
        return self._log.read_text(encoding="utf-8")

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.said.splitlines()]

    @property
    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children()

    def has_said(self, text: str, times: int = 1) -> None:
        until(
            lambda: self.said.count(text) >= times, PATIENCE_S, lambda: f"no {text!r}: {self.said}"
        )


class Place:
    """A working directory with a program, and a store."""

    def __init__(self, folder: Path, url: str, program: str) -> None:
        self.folder = folder
        self.url = url
        self._workers: list[Worker] = []
        kept = {k: v for k, v in os.environ.items() if not k.startswith("HOLDFAST_")}
        self.environment = kept | {"PYTHONPATH": str(PACKAGE), "HOLDFAST_URL": url}
        (folder / "orders.py").write_text(program, encoding="utf-8")
        self.on_store(lambda store: store.migrate())

    def command(self, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """A command, however it ends."""
        return subprocess.run(
            [sys.executable, "-m", "holdfast.cli", *arguments],
            cwd=self.folder,
            env=self.environment | environ,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def run(self, *arguments: str) -> str:
        """The stdout of a command that succeeds."""
        done = self.command(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def on_store(self, work: Callable[[Store], Awaitable[T]]) -> T:
        """The same without a process: what a test needs to be there."""

        async def run() -> T:
            address = Address(url=self.url)
            store = make_store(address, clock=SystemClock(), rng=Random(0))
            await store.migrate()
            await store.open()
            try:
                return await work(store)
            finally:
                await store.close()

        return asyncio.run(run())

    def rows(self, *arguments: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.run(*arguments, "--json"))["items"]
        return found

    def enqueue(self, kind: str, argument: str) -> str:
        row = self.run("task", "enqueue", "orders", kind, json.dumps([argument]), "--json")
        return str(json.loads(row)["id"])

    def state(self, id: str) -> str:
        return str(json.loads(self.run("task", "show", id, "--json"))["state"])

    def has(self, name: str) -> None:
        until((self.folder / name).exists, PATIENCE_S, lambda: f"{name} was not made")

    def start(self, *options: str, **environ: str) -> Worker:
        return self.start_command("worker", "orders", *options, **environ)

    def start_command(self, *arguments: str, **environ: str) -> Worker:
        log = self.folder / f"worker-{len(self._workers)}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "holdfast.cli", *arguments],
                cwd=self.folder,
                env=self.environment | environ,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        self._workers.append(Worker(process, log))
        return self._workers[-1]

    def close(self) -> None:
        for worker in self._workers:
            if worker.process.poll() is None:
                nodes = worker.children
                worker.process.kill()
                worker.process.wait(10)
                psutil.wait_procs(nodes, timeout=10)
